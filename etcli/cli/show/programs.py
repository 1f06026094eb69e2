"""A `.pte` program, and how two things differ, as people read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from etcli.output.console import Console
from etcli.output.units import bytes_text, counted

if TYPE_CHECKING:
    from etcli.pte.facts import MethodFacts, ProgramFacts, ValueFacts
    from etcli.verbs.differences import Differences
    from etcli.verbs.provision import Provision

_MOST_ROWS, _MOST_DIFFERENCES = 12, 40


def program(console: Console, facts: ProgramFacts, provision: Provision | None) -> None:
    """Everything the file says of itself, and what of it a runner lacks."""
    console.print(
        f"{facts.path}: {facts.identifier}, schema version {facts.version}, {bytes_text(facts.size)} "
        f"({bytes_text(facts.program_size)} program, {counted(len(facts.segments), 'segment')})"
    )
    for method in facts.methods:
        _method(console, method, provision)
    _segments(console, facts)
    _named_data(console, facts)
    provided(console, provision)


def provided(console: Console, provision: Provision | None) -> None:
    """The verdict on operators and delegates."""
    if provision is None:
        console.note(
            "operators are not held against a runner: ExecuTorch is not installed; name a build with --build DIR"
        )
    elif provision.lacking:
        console.warn(
            f"{provision.by} does not provide {', '.join(provision.lacking)}: it will refuse to load this",
            code="inspect.not_provided",
        )
    else:
        console.print(f"everything it needs is in {provision.by}", style="green")


def differences(console: Console, result: Differences) -> None:
    """What is not the same in both."""
    if result.same:
        console.print(f"{result.a} and {result.b} do not differ", style="green")
        return
    rows = [(item.what, item.a, item.b) for item in result.differences]
    console.table(
        f"{result.kind}: {result.a} and {result.b}", ("what", "first", "second"), _cut(console, rows, _MOST_DIFFERENCES)
    )


def _method(console: Console, method: MethodFacts, provision: Provision | None) -> None:
    rows = [
        row
        for direction, values in (("input", method.inputs), ("output", method.outputs))
        for row in _values(direction, values)
    ]
    console.table(f"Method {method.name}", ("tensor", "type", "shape", "memory"), rows)
    if method.delegates:
        delegates = [
            (
                item.backend,
                bytes_text(item.processed_size),
                f"{item.calls:,}",
                ", ".join(item.compile_specs) or "none",
                _mark(provision, item.backend),
            )
            for item in method.delegates
        ]
        console.table(
            "  Delegates", ("backend", "size", "calls", "compile options", "runner"), _cut(console, delegates)
        )
    if method.operators:
        operators = [(item.name, f"{item.calls:,}", _mark(provision, item.name)) for item in method.operators]
        console.table("  Operators outside delegates", ("operator", "calls", "runner"), operators)
    else:
        console.print("  no operators outside delegates")
    arenas = "; ".join(
        f"{bytes_text(arena.size)} for {counted(arena.tensors, 'tensor')} of {bytes_text(arena.tensor_bytes)} together"
        for arena in method.arenas
        if arena.size
    )
    console.print(f"  memory plan: {arenas or 'nothing beside what the caller gives'}")
    console.print(
        f"  {counted(method.instructions, 'instruction')}, {counted(method.values, 'value')}, "
        f"{counted(method.constants, 'constant tensor')}"
    )


def _values(direction: str, values: Sequence[ValueFacts]) -> Iterator[tuple[str, str, str, str]]:
    """A row for each run of equal neighbours: a chunk has dozens of caches of one shape."""
    start = 0
    for value, group in itertools.groupby(values):
        end = start + len(list(group)) - 1
        yield (
            f"{direction} {start}" if start == end else f"{direction}s {start}-{end}",
            value.dtype or value.kind,
            " x ".join(map(str, value.shape)) + ("" if value.dynamism == "static" else f" ({value.dynamism})"),
            "planned" if value.planned else "by the caller",
        )
        start = end + 1


def _mark(provision: Provision | None, name: str) -> str:
    return "not known" if provision is None else provision.mark(name) or "yes"


def _segments(console: Console, facts: ProgramFacts) -> None:
    held: dict[int, list[str]] = {}
    for data in facts.named_data:
        held.setdefault(data.segment, []).append(data.key)
    rows = [
        (
            f"{index}",
            f"{segment.offset:,}",
            bytes_text(segment.size),
            ", ".join(held.get(index, ())) or _constants(facts, index),
        )
        for index, segment in enumerate(facts.segments)
    ]
    if rows:
        console.table("Segments", ("segment", "offset", "size", "holds"), _cut(console, rows))


def _constants(facts: ProgramFacts, index: int) -> str:
    segment = facts.segments[index]
    inside = [item for item in facts.constants if segment.offset <= item.offset < segment.offset + segment.size]
    if inside:
        return counted(len(inside), "constant")
    if not segment.size:
        return "nothing"
    return "a delegate's data" if any(method.delegates for method in facts.methods) else "-"


def _named_data(console: Console, facts: ProgramFacts) -> None:
    if len({data.segment for data in facts.named_data}) < len(
        facts.named_data
    ):  # else each one's size is its segment's
        rows = [(data.key, f"{data.segment}", bytes_text(data.size)) for data in facts.named_data]
        console.table("Named data", ("key", "segment", "size"), _cut(console, rows))


def _cut(console: Console, rows: Sequence[tuple[str, ...]], most: int = _MOST_ROWS) -> Sequence[tuple[str, ...]]:
    """A long list's beginning, and how many there are beside: `-v` shows them all, and `--json`."""
    if len(rows) <= most or console.verbosity > 0:
        return rows
    rest = len(rows) - most
    return [*rows[:most], (f"and {rest:,} more (-v)", *[""] * (len(rows[0]) - 1))]
