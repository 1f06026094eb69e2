"""Median and spread of every quantity over the counted runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from etcli.manifests.bench import BenchRun, Figure

Better = Literal["more", "less", "neither"]
_Reading = Callable[[BenchRun], "float | None"]


def figures_of(runs: Sequence[BenchRun]) -> tuple[Figure, ...]:
    """The figures of `runs`, in the order in which people ask for them."""
    found = [_figure(name, unit, better, [read(run) for run in runs]) for name, unit, better, read in _quantities(runs)]
    always = len(_ALWAYS)
    return tuple(figure for index, figure in enumerate(found) if index < always or figure.median is not None)


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of `values` lie, between neighbours by proportion, as numpy's default does."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


_ALWAYS: tuple[tuple[str, str, Better, _Reading], ...] = (
    ("prefill", "tok/s", "more", lambda run: run.prefill_tokens_per_s),
    ("decode", "tok/s", "more", lambda run: run.decode_tokens_per_s),
    ("time to first token", "s", "less", lambda run: run.time_to_first_token_s),
    ("load", "s", "less", lambda run: run.load_s),
    ("peak memory", "MB", "less", lambda run: None if run.peak_memory_bytes is None else run.peak_memory_bytes / 1e6),
)


def _quantities(runs: Sequence[BenchRun]) -> Iterator[tuple[str, str, Better, _Reading]]:
    yield from _ALWAYS
    yield "token latency, median", "ms", "less", lambda run: _latency(run, 0.5)
    yield "token latency, 95 %", "ms", "less", lambda run: _latency(run, 0.95)
    for index in range(max((len(run.chunk_s) for run in runs), default=0)):
        yield f"chunk {index}, a token", "ms", "less", _of_chunk(index)
    for index in range(max((len(run.prefill_chunk_s) for run in runs), default=0)):
        yield f"chunk {index}, prefill", "ms", "less", _of_prefill(index)
    yield "hottest before", "°C", "neither", lambda run: run.before.hottest_c
    yield "hottest after", "°C", "neither", lambda run: run.after.hottest_c
    yield "core clock before", "MHz", "neither", lambda run: run.before.clock_mhz
    yield "core clock after", "MHz", "neither", lambda run: run.after.clock_mhz


def _latency(run: BenchRun, part: float) -> float | None:
    latencies = run.token_latencies_s
    return percentile(latencies, part) * 1000 if latencies else None


def _of_chunk(index: int) -> _Reading:
    return lambda run: run.chunk_s[index] / run.steps * 1000 if index < len(run.chunk_s) and run.steps else None


def _of_prefill(index: int) -> _Reading:
    return lambda run: run.prefill_chunk_s[index] * 1000 if index < len(run.prefill_chunk_s) else None


def _figure(name: str, unit: str, better: Better, measured: Sequence[float | None]) -> Figure:
    values = tuple(value for value in measured if value is not None)
    if not values:
        return Figure(name=name, unit=unit, better=better, median=None, low=None, high=None, values=())
    return Figure(
        name=name,
        unit=unit,
        better=better,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        values=values,
    )
