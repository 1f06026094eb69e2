"""What `etcli run` adds to the runner's own time, and to each token, against the stock `adb shell` running the same program.

A small random model, so that the runner itself is short and steady, on the x86_64 virtual device behind a real adb server of the benchmark's own. Both
start the same program with the same ids, in turn, as whole processes: ours from the command line to its end, the peer `adb shell` with its lines going
nowhere. `ratio` is what may be added over what is: 1 s a run, 5 ms a token. The cost of a token is the slope between a short and a long answer.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import Row, arguments, publish, wall_seconds
from private_adb import private_device

from etcli.common import process
from etcli.device.program import adb_program

ADDED_SECONDS = 1.0
ADDED_TOKEN_SECONDS = 0.005
SHORT, LONG = 16, 1016
CACHE = 1024
WORDS = "A phone."
FOLDER = "/data/local/tmp/etcli/streaming"

RECIPE = f"""
name: streaming
model: {{source: checkpoint}}
export: {{backend: portable, chunks: 1, shapes: [8t{CACHE}c, 1t{CACHE}c]}}
run: {{prompt: "{WORDS}", chat: false}}
"""

CHECKPOINT = """
import sys
from pathlib import Path
import tokenizers, tokenizers.decoders, tokenizers.models, tokenizers.pre_tokenizers, torch
from transformers import LlamaConfig, LlamaForCausalLM
folder = Path(sys.argv[1])
letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = tokenizers.decoders.ByteLevel()
tokenizer.add_special_tokens(["</s>"])
torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
    max_position_embeddings=2048, eos_token_id=256, bos_token_id=256,
)
LlamaForCausalLM(config).save_pretrained(folder)
tokenizer.save(str(folder / "tokenizer.json"))
"""


@dataclass(frozen=True)
class Pair:
    """Seconds of both, for a short and a long answer of so many tokens."""

    ours: dict[int, float]
    peer: dict[int, float]

    def added(self) -> float:
        """Seconds that a short run takes longer."""
        return self.ours[SHORT] - self.peer[SHORT]

    def token(self, seconds: dict[int, float]) -> float:
        """Seconds a token."""
        return (seconds[LONG] - seconds[SHORT]) / (LONG - SHORT)


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    with tempfile.TemporaryDirectory(prefix="etcli-bench-") as name:
        home = Path(name)
        with private_device(home / "cache", "x86_64") as (_, device):
            return publish("streaming", list(_rows(home, device.serial, 3 if flags.quick else 5)), as_json=flags.json)


def _rows(home: Path, serial: str, pairs: int) -> Iterator[Row]:
    # As installed: compiled once, whatever the shell that this is started from says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(home / "bytecode")
    (home / "checkpoint").mkdir()
    subprocess.run([sys.executable, "-c", CHECKPOINT, home / "checkpoint"], check=True, stdout=subprocess.DEVNULL)
    (home / "etcli.yaml").write_text(RECIPE, encoding="utf-8")
    os.chdir(home)
    for words in (["export"], ["build", "--target", "host"], ["deploy", "--serial", serial]):
        done = process.run(_etcli(*words))
        if not done.ok:
            raise SystemExit(done.stdout + done.stderr)
    run = ["run", "--serial", serial, "--set"]
    ids = _prompt_ids([*run, f"run.max_new_tokens={LONG}"])
    programs = {
        count: (
            # nothing ends the answer but the bound
            _etcli(*run, f"run.max_new_tokens={count}"),
            [adb_program(), "-s", serial, "shell", _shell_text(ids, count)],
        )
        for count in (SHORT, LONG)
    }
    measured = []
    for number in range(pairs + 1):
        taken = {count: (wall_seconds(ours), wall_seconds(peer)) for count, (ours, peer) in programs.items()}
        if number:  # the first is for the caches
            measured.append(Pair({n: both[0] for n, both in taken.items()}, {n: both[1] for n, both in taken.items()}))
    added = statistics.median(pair.added() for pair in measured)
    cpu = _cpu_seconds(programs[SHORT][0])
    yield Row(
        f"a run of {SHORT} tokens",
        statistics.median(pair.ours[SHORT] for pair in measured),
        statistics.median(pair.peer[SHORT] for pair in measured),
        "s",
        ADDED_SECONDS / max(added, 1e-6),
        1.0,
        added <= ADDED_SECONDS,
        f"{added:.3f} s added, {ADDED_SECONDS:g} allowed; {cpu:.2f} s of CPU time are etcli's",
    )
    each = statistics.median(pair.token(pair.ours) - pair.token(pair.peer) for pair in measured)
    yield Row(
        f"a token, between {SHORT} and {LONG}",
        statistics.median(pair.token(pair.ours) for pair in measured) * 1e3,
        statistics.median(pair.token(pair.peer) for pair in measured) * 1e3,
        "ms",
        ADDED_TOKEN_SECONDS / max(each, 1e-6),
        1.0,
        each <= ADDED_TOKEN_SECONDS,
        f"{each * 1e3:.3f} ms added, {ADDED_TOKEN_SECONDS * 1e3:g} allowed",
    )


def _cpu_seconds(argv: list[str]) -> float:
    """Seconds of CPU time of a process on this side: what a machine with other work stretches."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_seconds(argv)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _etcli(*words: str) -> list[str]:
    return [sys.executable, "-m", "etcli", *words]


def _prompt_ids(words: list[str]) -> list[int]:
    done = process.run(_etcli(*words, "--json"))
    if not done.ok:
        raise SystemExit(done.stdout + done.stderr)
    result = json.loads(done.stdout)["result"]
    if len(result["tokens"]) != LONG:
        raise SystemExit(f"the random model ends its answer after {len(result['tokens'])} tokens")
    return list(result["prompt_ids"])


def _shell_text(ids: list[int], count: int) -> str:
    """What a person would type: the program in its folder, with the flags that `etcli run` gives."""
    words = ["bin/etcli_llama_runner", "--config", "bundle/runner.cfg", "--prompt-ids", ",".join(map(str, ids))]
    return f"cd {FOLDER} && exec {shlex.join([*words, '--max-new-tokens', str(count)])}"


if __name__ == "__main__":
    sys.exit(main())
