"""The C interface for apps, used by a program in C under sanitizers: its tokens are those of transformers, over turns too; misuse is an answer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from aarch64_native import TARGET, build_for_aarch64, emulated
from tiny_bundle import CACHE, VOCABULARY, TinyBundle

from etcli.toolchain.executorch import wheel_for

pytestmark = pytest.mark.early

BUNDLES = {
    "shift": {},
    "shift_one_shape": {"shapes": (8,), "backend": "portable"},
    "ring": {"cache": "ring", "shapes": (12, 8, 3)},
}
OK, STOPPED, USAGE, LOAD, TENSOR, BUSY = 0, 1, 2, 3, 4, 6
STOP_ID, MAX_NEW_TOKENS, CACHE_FULL, WAS_STOPPED = 1, 2, 3, 4


@dataclass(frozen=True)
class Said:
    """What the client printed: lines split at blanks; `words` is its stderr."""

    lines: list[list[str]]
    words: str

    def status(self, step: str) -> list[tuple[int, str]]:
        """Status and code of each line of `step`."""
        return [(int(line[1]), line[2] if len(line) > 2 else "") for line in self.lines if line[0] == step]

    @property
    def tokens(self) -> list[int]:
        return [int(line[2]) for line in self.lines if line[0] == "token"]

    @property
    def indices(self) -> list[int]:
        return [int(line[1]) for line in self.lines if line[0] == "token"]

    @property
    def reasons(self) -> list[int]:
        return [int(line[1]) for line in self.lines if line[0] == "reason"]

    def numbers(self, first: str) -> list[dict[str, int]]:
        """Lines `name value name value`, of those that begin with `first`."""
        return [dict(zip(line[::2], map(int, line[1::2]), strict=True)) for line in self.lines if line[0] == first]


Client = Callable[..., Said]


def run_client(command: Sequence[str | Path], status: int = 0, **environment: str) -> Said:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    assert done.returncode == status, done.stdout + done.stderr
    return Said([line.split() for line in done.stdout.splitlines()], done.stderr)


@pytest.fixture(scope="session")
def client(native_build: Path) -> Client:
    """`client(bundle or configuration, *steps)`: tests/client.c with one thread; `status`, `threads` and the `program` as keywords."""

    def run(
        config: TinyBundle | Path, *steps: str, status: int = 0, threads: int = 1, program: str = "capi_client"
    ) -> Said:
        path = config.config if isinstance(config, TinyBundle) else config
        return run_client([native_build / "capi" / program, path, str(threads), *steps], status)

    return run


def ids(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


@pytest.mark.parametrize("name", BUNDLES)
def test_tokens_are_those_of_transformers(tiny_bundle, client: Client, name: str) -> None:
    bundle = tiny_bundle(**BUNDLES[name])
    for prompt in ([9], [5, 6, 7, 9, 11], list(range(20, 37))):
        said = client(bundle, f"prefill:{ids(prompt)}", "decode:6", "stats")
        assert said.tokens == bundle.greedy(prompt, 6)
        assert said.indices == [0, 1, 2, 3, 4, 5]
        assert said.reasons == [MAX_NEW_TOKENS]
        assert said.numbers("prompt") == [{"prompt": len(prompt), "new": 6, "steps": 5, "times": 1}]


@pytest.mark.parametrize("name", BUNDLES)
def test_turns_go_on_in_the_same_caches(tiny_bundle, client: Client, name: str) -> None:
    """Prompts behind answers, of lengths that need padding or not: each answer is what transformers says behind all of it."""
    bundle = tiny_bundle(**BUNDLES[name])
    for lengths in ((5, 3, 2), (1, 1, 8), (8, 7, 1)):
        conversation: list[int] = []
        expected: list[int] = []
        steps = []
        for turn, length in enumerate(lengths):
            prompt = [(31 * turn + 7 * i + length) % (VOCABULARY - 1) + 1 for i in range(length)]
            answer = bundle.greedy([*conversation, *prompt], 2)
            conversation += [*prompt, *answer]
            expected += answer
            steps += [f"prefill:{ids(prompt)}", "decode:2", "info"]
        said = client(bundle, *steps)
        assert said.tokens == expected, lengths
        assert said.indices == [0, 1] * 3
        taken = [sum(lengths[: turn + 1]) + 2 * (turn + 1) for turn in range(3)]
        assert [info["room"] for info in said.numbers("vocabulary")] == [CACHE - count for count in taken]


@pytest.mark.parametrize("name", ["shift", "ring"])
def test_an_answer_in_parts_is_the_whole_answer(tiny_bundle, client: Client, name: str) -> None:
    """Ended by its bound, by the callback, by another thread or before it began, and gone on with each time: no token is lost or said twice."""
    bundle = tiny_bundle(**BUNDLES[name])
    prompt = [5, 6, 7, 9, 11]
    said = client(
        bundle, f"prefill:{ids(prompt)}", "decode:3", "enough:9:2", "stopped:9:1", "stop", "decode:2", "decode:2"
    )
    assert said.tokens == bundle.greedy(prompt, 8)
    assert said.indices == list(range(8))
    assert said.reasons == [MAX_NEW_TOKENS, WAS_STOPPED, WAS_STOPPED, WAS_STOPPED, MAX_NEW_TOKENS]


def test_a_prompt_takes_back_an_earlier_stop(tiny_bundle, client: Client) -> None:
    bundle = tiny_bundle()
    said = client(bundle, "prefill:5,6", "stop", "prefill:7", "decode:2")
    assert said.tokens == bundle.greedy([5, 6, 7], 2)


def test_stop_ids_and_the_last_place(tiny_bundle, client: Client, changed) -> None:
    bundle = tiny_bundle()
    prompt = [5, 6, 7, 9, 11]
    free = bundle.greedy(prompt, 10)
    config = changed(bundle, {"stop_ids": str(free[3])})
    said = client(
        config, f"prefill:{ids(prompt)}", "decode:10", "decode-all:2", "decode-all:99", "decode:1", "prefill:1"
    )
    assert said.tokens[:4] == bundle.greedy(prompt, 10, [free[3]])
    assert said.tokens == bundle.greedy(prompt, CACHE - len(prompt) + 1)
    assert said.reasons == [STOP_ID, MAX_NEW_TOKENS, CACHE_FULL, CACHE_FULL]
    # No place is left for another turn, which is said before anything is forgotten.
    assert said.status("prefill")[-1] == (USAGE, "runner.prompt")
    assert f"the cache of this model holds {CACHE}, of which {CACHE} are taken" in said.words


def test_what_is_refused_forgets_nothing(tiny_bundle, client: Client) -> None:
    bundle = tiny_bundle()
    wrong = ["prefill:160", "prefill:-1", f"prefill:{ids(range(1, 24))}", "prefill:", "decode:0"]
    said = client(bundle, "decode:1", "prefill:5,6,7", "decode:1", *wrong, "decode:2")
    assert said.tokens == bundle.greedy([5, 6, 7], 3)
    assert said.status("prefill") == [(OK, ""), *[(USAGE, "runner.prompt")] * 4]
    assert said.status("decode") == [(USAGE, "runner.prompt"), (OK, ""), (USAGE, "runner.usage"), (OK, "")]
    for words in ("a prompt comes first", "prompt id 0 is 160", "prompt id 0 is -1", "max_new_tokens is 0"):
        assert words in said.words


def test_a_reset_forgets_everything(tiny_bundle, client: Client) -> None:
    for fields in BUNDLES.values():
        bundle = tiny_bundle(**fields)
        said = client(bundle, "prefill:5,6,7", "decode:4", "reset", "info", "decode:1", "prefill:9,8", "decode:4")
        assert said.tokens == [*bundle.greedy([5, 6, 7], 4), *bundle.greedy([9, 8], 4)]
        assert said.numbers("vocabulary") == [{"vocabulary": VOCABULARY, "context": CACHE, "room": CACHE, "threads": 1}]
        assert said.status("decode") == [(OK, ""), (USAGE, "runner.prompt"), (OK, "")]


def test_misuse_is_an_answer(tiny_bundle, client: Client) -> None:
    said = client(tiny_bundle(), "none", "prefill:5", "inside:1", "decode:1")
    assert ["no", "runner"] in said.lines
    assert {line[0]: int(line[1]) for line in said.lines if line[0].startswith("none-")} == {
        **dict.fromkeys(("none-load", "none-place", "none-threads", "none-prefill", "none-decode"), USAGE),
        **dict.fromkeys(("none-ids", "none-size", "none-info"), USAGE),
        "none-free": OK,
    }
    for step in ("inside-info", "inside-free", "inside-reset"):
        assert said.status(step) == [(BUSY, "runner.busy")]
    assert said.tokens == tiny_bundle().greedy([5], 2)


def test_what_does_not_load_is_told(tiny_bundle, client: Client, changed, tmp_path: Path) -> None:
    bundle = tiny_bundle()
    said = client(tmp_path / "absent.cfg", status=1)
    assert said.status("load") == [(LOAD, "runner.file")]
    assert f"{tmp_path}/absent.cfg: No such file or directory" in said.words
    said = client(changed(bundle, {"hidden_size": 32, "embedding.cols": 32}), status=1)
    assert said.status("load") == [(LOAD, "runner.file")]  # the table is of another size
    said = client(changed(bundle, {"cache": "ring"}), status=1)
    assert said.status("load") == [(TENSOR, "runner.tensor")]
    said = client(changed(bundle, {"cache": "oval"}), status=1)
    assert said.status("load") == [(USAGE, "runner.config")]


def test_runners_of_one_process_share_its_threads(tiny_bundle, client: Client) -> None:
    bundle, other = tiny_bundle(), tiny_bundle(**BUNDLES["ring"])
    steps = [f"second:{threads}:{other.config}" for threads in (2, 1, 0)]
    said = client(bundle, "prefill:5", *steps, "decode:3")
    assert said.status("second") == [(USAGE, "runner.usage"), (OK, ""), (OK, "")]
    assert "2 threads are asked for, and runners that are loaded use 1" in said.words
    assert said.tokens == bundle.greedy([5], 3)
    assert client(bundle, "info", threads=2).numbers("vocabulary")[0]["threads"] == 2


@pytest.mark.parametrize("name", BUNDLES)
def test_drawn_tokens_are_those_of_the_runner(tiny_bundle, client: Client, llama_runner, name: str) -> None:
    """The same seed gives what `etcli run --seed` gives, in one answer or in parts, again after a reset, and with the first token behind a prompt."""
    bundle = tiny_bundle(**BUNDLES[name])
    prompt, options = "5,6,7,9,11", ("0.8", "0.9", str(2**63 - 1))
    flags = [word for pair in zip(("--temperature", "--top-p", "--seed"), options, strict=True) for word in pair]
    run = llama_runner(
        *("--config", bundle.config, "--prompt-ids", prompt, "--max-new-tokens", "9", "--ignore-stop-ids"), *flags
    )
    drawn = [f"drawn:{count}:{':'.join(options)}" for count in (1, 3, 5, 9)]
    said = client(bundle, f"prefill:{prompt}", *drawn[:3], "reset", f"prefill:{prompt}", drawn[3])
    assert said.tokens == run.tokens * 2
    assert run.tokens != bundle.greedy([5, 6, 7, 9, 11], 9)
    other = client(bundle, f"prefill:{prompt}", f"drawn:9:0.8:0.9:{2**64 - 1}")  # any 64 bits are a seed
    assert len(other.tokens) == 9
    assert other.tokens != run.tokens


def test_each_call_has_options_of_its_own(tiny_bundle, client: Client, llama_runner) -> None:
    """Temperature 0 takes the likeliest whatever the others say, top_p down to 0 leaves it alone; nothing stays from the call before."""
    bundle = tiny_bundle()
    prompt = [5, 6, 7, 9, 11]
    first = client(bundle, f"prefill:{ids(prompt)}", "drawn:1:2.5:1:3").tokens
    assert first != bundle.greedy(prompt, 1)
    said = client(
        bundle, f"prefill:{ids(prompt)}", "drawn:1:2.5:1:3", "drawn:2:0:0.5:3", "drawn:2:2.5:0:3", "decode-all:3"
    )
    assert said.tokens == [*first, *bundle.greedy([*prompt, *first], 7)]
    assert said.status("decode") == [(OK, "")] * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-0.1:1", "temperature is -0.1, 0 to 1000 are possible"),
        ("1001:1", "temperature is 1001"),
        ("nan:1", "temperature is nan"),
        ("inf:1", "temperature is inf"),
        ("0.8:1.5", "top_p is 1.5, 0 to 1 are possible"),
        ("0.8:-0.5", "top_p is -0.5"),
        ("0:nan", "top_p is nan"),
    ],
)
def test_options_out_of_range_are_refused_and_forget_nothing(
    tiny_bundle, client: Client, options: str, words: str
) -> None:
    bundle = tiny_bundle()
    said = client(bundle, "prefill:5,6,7", "decode:1", f"drawn:3:{options}:0", "decode:2")
    assert said.status("decode") == [(OK, ""), (USAGE, "runner.usage"), (OK, "")]
    assert words in said.words
    assert said.tokens == bundle.greedy([5, 6, 7], 3)


def test_an_app_of_the_first_version_works_as_it_did(tiny_bundle, client: Client) -> None:
    """Its options end before temperature: nothing behind them is read, and what it decodes is greedy."""
    bundle = tiny_bundle(**BUNDLES["ring"])
    prompt = [5, 6, 7, 9, 11]
    steps = [f"prefill:{ids(prompt)}", "decode:3", "enough:9:2", "decode-all:2", "stats", "info"]
    said = client(bundle, *steps, program="capi_client_1")
    assert said.lines[0][:4] == ["api", "2", "of", "1,"]
    assert said.tokens == bundle.greedy(prompt, 7)
    assert said.reasons == [MAX_NEW_TOKENS, WAS_STOPPED, MAX_NEW_TOKENS]
    today = client(bundle, *steps)
    assert said.lines[1:] == today.lines[1:]
    assert client(bundle, "drawn:1:1:1:0", status=9, program="capi_client_1").lines[-1] == [
        "no",
        "step",
        "drawn:1:1:1:0",
    ]


@pytest.mark.full
def test_tokens_on_aarch64(tiny_bundle, tmp_path: Path) -> None:
    build_for_aarch64(tmp_path, ["capi_client"])
    bundle = tiny_bundle(**BUNDLES["ring"])
    steps = ["prefill:5,6,7,9,11", "decode:4", "prefill:3,4", "decode:4"]
    libraries = {"LD_LIBRARY_PATH": str(wheel_for(TARGET).libraries)}
    command = emulated(tmp_path / "capi" / "capi_client", bundle.config, "1", *steps, environment=libraries)
    first = bundle.greedy([5, 6, 7, 9, 11], 4)
    assert run_client(command).tokens == [*first, *bundle.greedy([5, 6, 7, 9, 11, *first, 3, 4], 4)]
