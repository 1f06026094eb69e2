"""Products with AQLM matrices on this machine's CPU, against the `aqlm` package's numba kernel and the straightforward loop.

One process, contenders in turn. With one token every call meets codes that no cache holds, as in a model: copies of at least 128 MiB take
turns. Times on one thread are that thread's processor time, so that what else runs on the machine counts for little; with two threads they are
wall times. The loop is the better of two compilations. An error is the larger of norm-relative and max-relative, of the worst token, against a
float64 dense product; with outliers, some channels' inputs are up to 1000 times the others'. The last row is reckoned, not measured.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from aqlm_contenders import LOOP_FLAGS, Kernels, Loop, Package, Product, package
from harness import Row, arguments, publish
from neon_estimate import OLDEST, analyser, cycles_a_look_up

from etcli.common.errors import ToolError

SHAPES = ((4096, 4096), (4096, 14336), (14336, 4096), (2048, 2048), (2048, 8192))
ROTATED_BYTES = 128 << 20
ERROR_BAR = 5e-6
DENSE_BAR = 2.5
NEON_BAR = 0.45
SAME_BITS_RUNS = 100
PARTS_OF_DENSE = 512
"""Rows of a dense float64 matrix that are held at a time."""


@dataclass(frozen=True)
class Race:
    """Against both peers: `numba` and `loop` are the bars."""

    tokens: int
    threads: int
    version: str
    numba: float
    loop: float

    @property
    def name(self) -> str:
        """As in the rows."""
        tokens = f"{self.tokens} token{'s' if self.tokens > 1 else ''}"
        return f"{tokens} {self.threads} thread{'s' if self.threads > 1 else ''} {self.version}"


RACES = (
    Race(1, 1, "avx512vbmi", 4.5, 4),
    Race(1, 1, "avx2", 1.35, 1.15),
    Race(1, 2, "avx512vbmi", 4, 4),
    Race(32, 1, "avx2", 5.5, 5),
    Race(32, 1, "avx512", 8, 7),
)


class Example:
    """One product: a random matrix in AQLM form and inputs; `next()` gives the codes, from copies that take turns."""

    def __init__(self, inputs: int, outputs: int, tokens: int, *, rotated: bool, outliers: bool = False) -> None:
        random = torch.Generator().manual_seed(inputs + outputs)
        self.input = torch.randn(tokens, inputs, generator=random)
        if outliers:
            self.input[:, ::509] *= 10 ** (3 * torch.rand(self.input[:, ::509].shape[1], generator=random))
        codes = torch.randint(-128, 128, (inputs // 8, outputs, 2), dtype=torch.int8, generator=random)
        self.codebooks = torch.randn(2, 256, 1, 8, generator=random)
        self.scales = torch.rand(outputs, 1, 1, 1, generator=random) + 0.5
        self.out = torch.empty(tokens, outputs)
        copies = -(-ROTATED_BYTES // codes.numel()) if rotated else 1
        self._copies = [codes, *(codes.clone() for _ in range(copies - 1))]
        self._turn = 0

    def next(self) -> torch.Tensor:
        """Codes, int8 [in/8, out, 2]."""
        self._turn += 1
        return self._copies[self._turn % len(self._copies)]

    def dense(self, dtype: torch.dtype) -> Iterator[torch.Tensor]:
        """The matrix, [out, in], some rows at a time."""
        codes = self._copies[0].view(torch.uint8).int()
        books = self.codebooks.to(dtype)[:, :, 0]
        scales = self.scales.to(dtype).view(-1, 1)
        for first in range(0, codes.shape[1], PARTS_OF_DENSE):
            rows = codes[:, first : first + PARTS_OF_DENSE]
            entries = books[0][rows[..., 0]] + books[1][rows[..., 1]]
            yield entries.transpose(0, 1).reshape(rows.shape[1], -1) * scales[first : first + PARTS_OF_DENSE]

    def error(self) -> float:
        """Of `out`, against the float64 product."""
        exact = torch.cat([self.input.double() @ rows.T for rows in self.dense(torch.float64)], dim=1)
        away = self.out.double() - exact
        by_norm = away.norm(dim=1) / exact.norm(dim=1)
        by_most = away.abs().amax(dim=1) / exact.abs().amax(dim=1)
        return float(torch.maximum(by_norm, by_most).max())


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    torch.set_num_threads(1)
    kernels = Kernels()
    loops = {name: Loop(name) for name in LOOP_FLAGS if name == "native" or "avx2" in kernels.versions}
    peer, what = package()
    rows: list[Row] = []
    for race in RACES:
        rows += _race(race, kernels, loops, peer, what, quick=flags.quick)
    rows += [_same_bits(kernels), _against_dense(kernels, pairs=5 if flags.quick else 9)]
    rows += [
        _error(kernels, version, tokens) for version, tokens in dict.fromkeys((r.version, r.tokens) for r in RACES)
    ]
    rows.append(_neon())
    return publish("aqlm_kernels", rows, as_json=flags.json)


def _race(
    race: Race, kernels: Kernels, loops: Mapping[str, Loop], peer: Package | None, what: str, *, quick: bool
) -> list[Row]:
    bars = {"numba": race.numba, "loop": race.loop}
    if race.version not in kernels.versions:
        return [
            _absent(f"{race.name}, {name}", "us", bar, f"this CPU has no {race.version}") for name, bar in bars.items()
        ]
    rows = []
    for inputs, outputs in SHAPES:
        example = Example(inputs, outputs, race.tokens, rotated=race.tokens == 1)
        contenders = {"ours": kernels.product(race.version, example, race.threads)}
        contenders |= {name: loop.product(example, race.threads) for name, loop in loops.items()}
        if peer is not None:
            contenders["numba"] = peer.product(example)
        times = _in_turn(contenders, example, turns=_turns(race.tokens, quick), alone=race.threads == 1)
        loop = min(loops, key=lambda name: statistics.median(times[name]))
        shape = f"{inputs}->{outputs},"
        if peer is None:
            rows.append(_absent(f"{race.name} {shape} numba", "us", race.numba, what))
        else:
            note = what if race.threads == 1 else f"{what}; peer: its one thread"
            rows.append(_compared(f"{race.name} {shape} numba", times["ours"], times["numba"], race.numba, note))
        rows.append(
            _compared(f"{race.name} {shape} loop", times["ours"], times[loop], race.loop, f"compiled for {loop}")
        )
    return rows


def _turns(tokens: int, quick: bool) -> int:
    if tokens == 1:
        return 60 if quick else 300
    return 5 if quick else 11


def _in_turn(contenders: Mapping[str, Product], example: Example, *, turns: int, alone: bool) -> dict[str, list[float]]:
    """Microseconds of each contender's calls, one of each after the other, once all are seen to compute the same.

    Raises:
        RuntimeError: one computes something else.
    """
    results = {}
    for name, product in contenders.items():
        given = product(example.next())
        results[name] = given if isinstance(given, torch.Tensor) else example.out.clone()
    for name, result in results.items():
        if not (result - results["ours"]).norm() < 1e-3 * results["ours"].norm():
            raise RuntimeError(f"{name} computes something else than our kernel")
    clock = time.thread_time if alone else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 2):  # two to warm up
        for name, product in contenders.items():
            codes = example.next()
            start = clock()
            product(codes)
            if turn >= 2:
                times[name].append((clock() - start) * 1e6)
    return times


def _compared(case: str, ours: Sequence[float], peer: Sequence[float], bar: float, note: str) -> Row:
    ratio = statistics.median(b / a for a, b in zip(ours, peer, strict=True))
    return Row(case, statistics.median(ours), statistics.median(peer), "us", ratio, bar, ratio >= bar, note)


def _absent(case: str, unit: str, bar: float | None, note: str) -> Row:
    return Row(case, None, None, unit, None, bar, None, note)


def _same_bits(kernels: Kernels) -> Row:
    """Two threads, again and again, and one thread once: how many different results."""
    version = kernels.versions[-1]
    seen = set()
    for inputs, outputs in SHAPES:
        example = Example(inputs, outputs, 1, rotated=False)
        results = set()
        for threads in (1, *[2] * SAME_BITS_RUNS):
            example.out.zero_()
            kernels.product(version, example, threads)(example.next())
            results.add(example.out.numpy().tobytes())
        seen.add(len(results))
    most = max(seen)
    note = f"{version}, every shape, {SAME_BITS_RUNS} runs on 2 threads and one on 1"
    return Row("1 token 2 threads, different results", most, 1, "results", 1 / most, 1, most == 1, note)


def _against_dense(kernels: Kernels, pairs: int) -> Row:
    version = kernels.versions[-1]
    example = Example(4096, 4096, 256, rotated=False)
    matrix = torch.cat(list(example.dense(torch.float32)))
    ours = kernels.product(version, example, 1)
    contenders: dict[str, Callable[[torch.Tensor], object]] = {
        "ours": ours,
        "dense": lambda _: torch.nn.functional.linear(example.input, matrix),
    }
    times = _in_turn(contenders, example, turns=pairs, alone=True)
    case = f"256 tokens 1 thread {version} 4096->4096, dense"
    return _compared(
        case, times["ours"], times["dense"], DENSE_BAR, f"peer: float32 product of PyTorch {torch.__version__}"
    )


def _error(kernels: Kernels, version: str, tokens: int) -> Row:
    """The largest over all shapes, without outliers and with."""
    case = f"{tokens} token{'s' if tokens > 1 else ''} {version}, error"
    if version not in kernels.versions:
        return _absent(case, "", None, f"this CPU has no {version}")
    errors = {}
    for inputs, outputs in SHAPES:
        for outliers in (False, True):
            example = Example(inputs, outputs, tokens, rotated=False, outliers=outliers)
            kernels.product(version, example, 1)(example.next())
            errors[f"{inputs}->{outputs}{' with outliers' if outliers else ''}"] = example.error()
    worst = max(errors, key=lambda name: errors[name])
    ratio = ERROR_BAR / errors[worst]
    return Row(
        case,
        errors[worst],
        ERROR_BAR,
        "",
        ratio,
        1,
        ratio >= 1,
        f"largest of all shapes: {worst}; peer: what is allowed",
    )


def _neon() -> Row:
    case = "1 token neon, cycles a look-up (reckoned)"
    found = analyser()
    if found is None:
        return _absent(case, "cycles", 1, f"no llvm-mca {OLDEST} or newer is installed")
    program, version = found
    try:
        cycles = cycles_a_look_up(program)
    except ToolError as error:
        return _absent(case, "cycles", 1, str(error))
    note = f"llvm-mca {version}, neoverse-v2; peer: what is allowed"
    return Row(case, cycles, NEON_BAR, "cycles", NEON_BAR / cycles, 1, cycles <= NEON_BAR, note)


if __name__ == "__main__":
    sys.exit(main())
