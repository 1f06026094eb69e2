"""Whether a comparison passes: no figure worse than it may be, beyond what the spread of the runs explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from etcli.common.errors import Problem, Problems, UsageError, WorseError
from etcli.output.units import figure_text
from etcli.verbs.bench.comparing import ComparedFigure, ComparedPair, Comparison

Limits = Mapping[str | None, float]
"""The smallest ratio that passes, by figure; None stands for all that have none of their own."""


def judge(comparison: Comparison, limits: Limits, *, unlike_ok: bool = False) -> Comparison:
    """`comparison` with `passed`.

    A figure fails where its ratio is below its limit and, for limits up to 1, its interval lies below 1 as a whole: what the spread of the runs
    explains does not fail. A limit above 1 asks for a gain, which the ratio alone has to show.

    Raises:
        UsageError: the reports cannot be judged: other devices, models or prompts (unless `unlike_ok`), too few runs, a benchmark that ended early,
            a device or a figure that only one of them has.
        WorseError: figures that fail, each a problem; `etcli_result` is the comparison.
    """
    problems = Problems()
    for problem in _unfit(comparison, limits, unlike_ok=unlike_ok):
        problems.add(problem)
    problems.raise_if_any()
    failed = [
        (pair, figure)
        for pair in comparison.pairs
        for figure in pair.figures
        if (limit := _limit(limits, figure.name)) is not None and not _passes(figure, limit)
    ]
    result = replace(comparison, passed=not failed)
    if failed:
        error = WorseError.many(_worse(pair, figure, limits) for pair, figure in failed)
        error.etcli_result = result  # type: ignore[attr-defined]
        raise error
    return result


def _limit(limits: Limits, name: str) -> float | None:
    return limits.get(name, limits.get(None))


def _passes(figure: ComparedFigure, limit: float) -> bool:
    return figure.ratio >= limit or (limit <= 1 and (figure.high is None or figure.high >= 1))


def _worse(pair: ComparedPair, figure: ComparedFigure, limits: Limits) -> Problem:
    several = f" on {pair.b.device.serial}"
    between = (
        ""
        if figure.low is None or figure.high is None
        else f", by the runs between {figure.low:.3f} and {figure.high:.3f}"
    )
    return WorseError.problem(
        f"{figure.name}{several}: {figure_text(figure.a)} {figure.unit} before, {figure_text(figure.b)} {figure.unit} now, ratio {figure.ratio:.3f}"
        f"{between}; at least {_limit(limits, figure.name):g} is asked for",
        code="bench.worse",
        hint=_hint(pair),
    )


def _hint(pair: ComparedPair) -> str:
    if pair.differences:
        return f"The reports differ in {'; '.join(pair.differences)}."
    return "Bundle, program and device are the same: look at heat and other programs on the device, and measure both again with --pause SECONDS."


def _lost(pair: ComparedPair) -> list[str]:
    """Figures that one report measured and the other did not, or in another unit. Chunks are left out: another number of them may be what is compared."""
    both = {figure.name for figure in pair.figures}
    measured = [
        figure.name for figure in (*pair.a.figures, *pair.b.figures) if figure.median and figure.better != "neither"
    ]
    return [name for name in dict.fromkeys(measured) if name not in both and not name.startswith("chunk ")]


def _unfit(comparison: Comparison, limits: Limits, *, unlike_ok: bool) -> Iterator[Problem]:
    again = "Measure both with `etcli bench --json` alike."
    for path in comparison.ended_early:
        yield UsageError.problem(
            "the benchmark ended early, so that its runs cannot be judged",
            code="bench.ended_early",
            hint="Measure it again.",
            file=path,
        )
    for serial in comparison.alone:
        yield UsageError.problem(
            f"only one of the documents has the device {serial}", code="bench.device_missing", hint=again
        )
    for pair in comparison.pairs:
        serial = pair.b.device.serial
        if pair.unlike and not unlike_ok:
            yield UsageError.problem(
                f"the reports of {serial} cannot be judged against one another: they differ in {'; '.join(pair.unlike)}",
                code="bench.unlike",
                hint=f"{again} --unlike-ok judges them as they are.",
            )
        there = {figure.name for figure in pair.figures}
        for name in limits:
            if name is not None and name not in there:
                yield UsageError.problem(
                    f"the reports of {serial} have no figure {name!r} in common",
                    code="bench.unknown_figure",
                    hint=f"They have: {', '.join(sorted(there)) or 'none'}.",
                )
        for name in _lost(pair) if None in limits else ():
            yield UsageError.problem(
                f"only one of the reports of {serial} tells {name} in a way that can be compared",
                code="bench.unknown_figure",
                hint=again,
            )
        if not there:
            yield UsageError.problem(
                f"the reports of {serial} have no figure in common", code="bench.unknown_figure", hint=again
            )
        if any(
            figure.low is None or not figure.sure for figure in pair.figures if _limit(limits, figure.name) is not None
        ):
            yield UsageError.problem(
                f"the reports of {serial} have {pair.a.runs} and {pair.b.runs} runs, too few to tell a change from chance",
                code="bench.too_few_runs",
                hint="Measure at least 4 runs each (--runs 5 is the default).",
            )
