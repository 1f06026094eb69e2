"""Drawing tokens: the distribution is that of a softmax and its nucleus, and the same seed gives the same tokens wherever it runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from aarch64_native import TARGET, emulated

from etcli.common.assets import asset_dir
from etcli.toolchain import compilers

SETTINGS = [(1.0, 1.0), (0.7, 0.9), (0.25, 0.5), (2.5, 0.97), (1000.0, 1.0), (0.01, 1.0), (1.3, 1e-6)]
DRAWS = 20_000


def logits_of(size: int) -> np.ndarray:
    """Like a language model's: most far below, some close together, ties among them."""
    generator = np.random.default_rng(size)
    logits = generator.normal(0, 3, size).astype(np.float32)
    logits[generator.integers(0, size, 12)] += np.float32(9)
    logits[5] = logits[3]
    return logits


def nucleus(logits: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """Probabilities after temperature and top-p, in float64: the fewest likeliest tokens whose sum reaches top_p."""
    scaled = logits.astype(np.float64) / temperature
    whole = np.exp(scaled - scaled.max())
    whole /= whole.sum()
    order = np.argsort(-whole, kind="stable")
    before = np.cumsum(whole[order]) - whole[order]
    kept = order[before < top_p]
    chosen = np.zeros_like(whole)
    chosen[kept] = whole[kept]
    return chosen / chosen.sum()


def ask(program: list[str | Path], *words: object) -> tuple[dict[int, int], list[int]]:
    done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, timeout=120, check=True)
    weights, drawn = done.stdout.splitlines()
    return {int(a): int(b) for a, b in (pair.split(":") for pair in weights.split())}, [
        int(id_) for id_ in drawn.split()
    ]


@pytest.mark.parametrize(("temperature", "top_p"), SETTINGS)
def test_the_distribution_is_that_of_softmax_and_nucleus(
    native_build: Path, tmp_path: Path, temperature: float, top_p: float
) -> None:
    program = [native_build / "runner/tests/print_samples"]
    for size, draws in ((50_000, 1), (160, DRAWS)):
        logits = logits_of(size)
        (tmp_path / "logits").write_bytes(logits.tobytes())
        expected = nucleus(logits, temperature, top_p)
        weights, drawn = ask(program, tmp_path / "logits", temperature, top_p, 7, draws)
        found = np.zeros(size)
        found[list(weights)] = list(weights.values())
        found /= found.sum()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-11)
    # what is drawn: chi-square over tokens that are expected often enough, the others as one; the seed is fixed, so this never flickers
    counts = np.bincount(drawn, minlength=size)
    often = expected * DRAWS >= 10
    cells = np.append(expected[often], expected[~often].sum()) * DRAWS
    seen = np.append(counts[often], counts[~often].sum())
    cells, seen = cells[cells > 0], seen[cells > 0]
    freedom = max(len(cells) - 1, 1)
    distance = float(((seen - cells) ** 2 / cells).sum())
    assert distance < freedom + 5 * np.sqrt(2 * freedom), (distance, freedom)
    assert counts[expected == 0].sum() == 0


def test_a_seed_gives_the_same_tokens_with_every_compiler_and_processor(native_build: Path, tmp_path: Path) -> None:
    """Sanitizers at -O0, everything that this processor has, and aarch64, whose compilers fuse products and sums by default."""
    sources = [
        asset_dir("native") / "runner" / name for name in ("tests/print_samples.cpp", "sampling.cpp", "inputs.cpp")
    ]
    include = f"-I{asset_dir('native') / 'runner'}"
    programs: list[list[str | Path]] = [[native_build / "runner/tests/print_samples"]]
    for name, compiler, flags in (
        ("native", shutil.which("g++"), ["-O3", "-march=native"]),
        ("aarch64", compilers.verify(TARGET).path, ["-O3", "-mcpu=cortex-a76", "-ffp-contract=fast"]),
    ):
        program = tmp_path / name
        subprocess.run([compiler, "-std=c++17", *flags, include, *sources, "-o", program], check=True, timeout=300)
        programs.append(emulated(program) if name == "aarch64" else [program])
    (tmp_path / "logits").write_bytes(logits_of(5000).tobytes())
    for temperature, top_p in SETTINGS:
        words = (tmp_path / "logits", temperature, top_p, 2**63 - 1, 200)
        first, *others = [ask(program, *words) for program in programs]
        assert all(other == first for other in others)
        assert ask(programs[0], *words[:3], 1, 200)[1] != first[1] or len(first[0]) == 1


def test_the_runner_draws(tiny_bundle, llama_runner) -> None:
    """Equal seeds, equal tokens; other seeds, others; each token drawn is one of the nucleus after those before it."""
    import torch

    bundle = tiny_bundle()
    base = ("--config", bundle.config, "--prompt-ids", "5,6,7", "--max-new-tokens", "12", "--ignore-stop-ids")
    settings = ("--temperature", "0.8", "--top-p", "0.9")
    first = llama_runner(*base, *settings, "--seed", "3")
    assert first.status == 0, first.stderr
    assert llama_runner(*base, *settings, "--seed", "3").tokens == first.tokens
    assert llama_runner(*base, *settings, "--seed", "4").tokens != first.tokens
    with torch.no_grad():
        logits = bundle.oracle(torch.tensor([[5, 6, 7, *first.tokens[:-1]]])).logits[0, 2:].numpy()
    for row, token in zip(logits, first.tokens, strict=True):
        assert nucleus(row, 0.8, 0.9 + 1e-4)[token] > 0
    greedy = bundle.greedy([5, 6, 7], 12)
    assert llama_runner(*base).tokens == greedy
    assert llama_runner(*base, "--seed", "3", "--top-p", "0.5").tokens == greedy  # temperature 0
    assert llama_runner(*base, "--temperature", "1", "--top-p", "1e-9").tokens == greedy


@pytest.mark.parametrize(
    "words",
    [("--temperature", "-1"), ("--temperature", "nan"), ("--temperature", "1x"), ("--top-p", "1.1"), ("--seed", "-1")],
)
def test_settings_out_of_range_are_refused(tiny_bundle, llama_runner, words: tuple[str, str]) -> None:
    run = llama_runner("--config", tiny_bundle().config, "--prompt-ids", "5", *words)
    assert run.status == 2
    assert run.one("error")["code"] == "runner.usage"
    assert words[0] in run.one("error")["message"]
