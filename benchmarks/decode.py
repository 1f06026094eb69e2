"""Tokens a second on this machine's CPU, and memory, against ExecuTorch's LLM runner.

The same model at the same precision: ours as 5 chunks with ring caches through the runner that `etcli build --target host` makes, the peer's as
one program from `export_llm` through `TextLLMRunner` of the same wheel, in turn. Decode rates count one-token steps, prefill rates count prompt tokens.
The last rows compare resident memory after loading both methods of every chunk, with packed weights shared between methods and not.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executorch_peer import peer_folder, peer_model, run_export_llm
from harness import Row, arguments, publish

from etcli.tokenizer.opening import open_tokenizer

RECIPES = {"fp32": "smollm2-135m", "8da4w": "smollm2-135m-8da4w"}
STEPS = 128
PROMPT_TOKENS = 201
DECODE_BARS = {("fp32", 2): 1.05, ("fp32", 1): 0.98, ("8da4w", 2): 1.15}
PREFILL_BARS = {"fp32": 1.0, "8da4w": 1.2}
MEMORY_BAR = 1 / 0.6
WORDS = (
    "A phone runs a small language model while a train crosses the bridge and the river below carries boats to the sea."
)

PEER = """
import json, sys
import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized
from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

program, tokenizer, prompt, steps, threads = sys.argv[1:]
_unsafe_reset_threadpool(int(threads))
runner = TextLLMRunner(program, tokenizer)
stats = []
config = dict(echo=False, max_new_tokens=int(steps) + 1, temperature=0.0)
runner.generate(prompt, GenerationConfig(**{**config, "max_new_tokens": 4}), lambda text: None)
runner.reset()
runner.generate(prompt, GenerationConfig(**config), lambda text: None, stats.append)
(found,) = stats
print("@" + json.dumps({
    "prompt_tokens": found.num_prompt_tokens,
    "steps": found.num_generated_tokens,
    "prefill_s": (found.prompt_eval_end_ms - found.inference_start_ms) / 1000,
    "decode_s": (found.inference_end_ms - found.prompt_eval_end_ms) / 1000,
}))
"""


@dataclass(frozen=True)
class Speed:
    """Tokens a second."""

    prefill: float
    decode: float


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    pairs = 1 if flags.quick else 5
    text = _prompt()
    rows: list[Row] = []
    for precision in RECIPES:
        runner, config = _our_programs(precision)
        program = run_export_llm(precision).program
        for threads in (2, 1):
            if threads == 1 and precision != "fp32":
                continue
            rows += _compared(
                precision,
                threads,
                lambda threads=threads, runner=runner, config=config: _ours(runner, config, text, threads),  # type: ignore[misc]
                lambda threads=threads, program=program: _peer(program, text, threads),  # type: ignore[misc]
                pairs,
            )
        rows.append(_memory(precision, runner, config))
    return publish("decode", rows, as_json=flags.json)


def _compared(
    precision: str, threads: int, ours: Callable[[], Speed], peer: Callable[[], Speed], pairs: int
) -> list[Row]:
    measured = [(ours(), peer()) for _ in range(pairs)]
    rows = []
    for what, bar in (
        ("decode", DECODE_BARS.get((precision, threads))),
        ("prefill", PREFILL_BARS[precision] if threads == 2 else None),
    ):
        mine = [float(getattr(a, what)) for a, _ in measured]
        theirs = [float(getattr(b, what)) for _, b in measured]
        ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        detail = f", {PROMPT_TOKENS} tokens" if what == "prefill" else f", {STEPS} steps"
        rows.append(
            Row(
                f"{what}, {precision}, {threads} thread{'s' if threads > 1 else ''}{detail}",
                statistics.median(mine),
                statistics.median(theirs),
                "tok/s",
                ratio,
                bar,
                None if bar is None else ratio >= bar,
                "peer: TextLLMRunner",
            )
        )
    return rows


def _ours(runner: Path, config: Path, text: str, threads: int) -> Speed:
    """A run of the host build's runner, on this machine as it is."""
    stats = _events(runner, config, "--threads", str(threads), *_generation(text))[-1]
    if stats["prompt_tokens"] != PROMPT_TOKENS or stats["decode_steps"] != STEPS:
        raise RuntimeError(f"the run was cut short: {stats}")
    return Speed(stats["prefill_tokens_per_s"], stats["decode_tokens_per_s"])


def _generation(text: str) -> list[str]:
    ids = ",".join(map(str, open_tokenizer(peer_model().tokenizer.parent).encode(text)))
    return ["--prompt-ids", ids, "--max-new-tokens", str(STEPS + 1), "--ignore-stop-ids"]


def _events(runner: Path, config: Path, *flags: str) -> list[dict[str, Any]]:
    found = subprocess.run(
        [str(runner), "--config", str(config), *flags],
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return [json.loads(line) for line in found.stdout.splitlines()]


def _peer(program: str, text: str, threads: int) -> Speed:
    argv = [sys.executable, "-c", PEER, program, str(peer_model().tokenizer), text, str(STEPS), str(threads)]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    found = json.loads(next(line[1:] for line in printed.splitlines() if line.startswith("@")))
    if found["prompt_tokens"] != PROMPT_TOKENS or found["steps"] < STEPS:
        raise RuntimeError(f"the peer's run was cut short: {found}")
    return Speed(found["prompt_tokens"] / found["prefill_s"], found["steps"] / found["decode_s"])


def _memory(precision: str, runner: Path, config: Path) -> Row:
    shared, apart = (
        int(
            next(event for event in _events(runner, config, "--check", *flags) if event["event"] == "loaded")[
                "memory_bytes"
            ]
        )
        for flags in ((), ("--no-shared-weights",))
    )
    ratio = apart / shared
    return Row(
        f"resident after load, {precision}",
        shared,
        apart,
        "B",
        ratio,
        MEMORY_BAR,
        ratio >= MEMORY_BAR,
        "peer: ours, not shared",
    )


def _our_programs(precision: str) -> tuple[Path, Path]:
    """The host build's runner and the bundle's configuration, made where they are not current."""
    workspace = peer_folder().parent / "ours"
    recipe = RECIPES[precision]
    shapes = "export.shapes=[128t512c, 1t512c]"
    for verb in (["export"], ["build", "--target", "host"]):
        _etcli([*verb, recipe, "--workspace", str(workspace), "--set", shapes])
    home = workspace / recipe
    return home / "build" / "host" / "stage" / "etcli_llama_runner", home / "bundle" / "runner.cfg"


def _etcli(words: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "etcli", *words],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
    )


def _prompt() -> str:
    """A text of exactly PROMPT_TOKENS tokens."""
    tokenizer = open_tokenizer(peer_model().tokenizer.parent)
    words = WORDS.split()
    text = ""
    for index in range(10 * PROMPT_TOKENS):
        text = f"{text} {words[index % len(words)]}" if text else words[0]
        if len(tokenizer.encode(text)) == PROMPT_TOKENS:
            return text
    raise RuntimeError(f"no prompt of {PROMPT_TOKENS} tokens found")


if __name__ == "__main__":
    sys.exit(main())
