"""Two `.pte` programs held against one another: what is called, with which tensors, by whom, and the bytes of each part."""

from __future__ import annotations

import hashlib
import itertools
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.output.units import bytes_text, counted
from etcli.pte.facts import MethodFacts, ProgramFacts, ValueFacts


@dataclass(frozen=True)
class Difference:
    """One value that is not the same; `-` where one of the two has none."""

    what: str
    a: str
    b: str


def program_differences(a: ProgramFacts, b: ProgramFacts) -> list[Difference]:
    """What differs. Methods are paired by name; where no name is in both, by their order, as between two chunks of a model.

    Of programs whose parts have the same sizes the bytes of each part are compared too: other weights in the same network, say.
    """
    found = list(unequal("", _whole(a), _whole(b)))
    names = [method.name for method in a.methods], [method.name for method in b.methods]
    if set(names[0]) & set(names[1]):
        for name in dict.fromkeys((*names[0], *names[1])):
            x, y = a.method(name), b.method(name)
            if x is None or y is None:
                found.append(Difference(f"method {name}", _there(x), _there(y)))
            else:
                found += unequal(f"method {name}: ", _method(x), _method(y))
    else:
        for number, (x, y) in enumerate(itertools.zip_longest(a.methods, b.methods), 1):
            found.append(Difference(f"method {number}", x.name if x else "-", y.name if y else "-"))
            if x and y:
                found += unequal(f"method {number}: ", _method(x), _method(y))
    return [*found, *_contents(a, b)]


def _there(method: MethodFacts | None) -> str:
    return "-" if method is None else "there"


def unequal(head: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    """The entries that are not the same in both, their names after `head`."""
    for what in dict.fromkeys((*left, *right)):
        if left.get(what) != right.get(what):
            yield Difference(head + what, left.get(what, "-"), right.get(what, "-"))


def _whole(program: ProgramFacts) -> dict[str, str]:
    named = sum(item.size for item in program.named_data)
    constants = sum(item.size for item in program.constants)
    return {
        "format": f"{program.identifier}, schema version {program.version}",
        "size": f"{program.size:,} B",
        "program": f"{program.program_size:,} B",
        "segments": f"{len(program.segments)}, {bytes_text(sum(segment.size for segment in program.segments))}",
        "named data": f"{len(program.named_data)}, {bytes_text(named)}",
        "constants": f"{len(program.constants)}, {bytes_text(constants)}",
    }


def _method(method: MethodFacts) -> dict[str, str]:
    arenas = ", ".join(bytes_text(size) for size in method.planned_buffers if size)
    return {
        **dict(_values("input", method.inputs)),
        **dict(_values("output", method.outputs)),
        **{
            f"delegate {number}": f"{item.backend}, {bytes_text(item.processed_size)}, called {counted(item.calls, 'time')}"
            for number, item in enumerate(method.delegates)
        },
        **{f"operator {item.name}": f"called {counted(item.calls, 'time')}" for item in method.operators},
        "memory plan": arenas or "none",
        "instructions": f"{method.instructions:,}",
        "constant tensors": f"{method.constants:,}",
    }


def _values(direction: str, values: Sequence[ValueFacts]) -> Iterator[tuple[str, str]]:
    for number, value in enumerate(values):
        shape = " x ".join(map(str, value.shape))
        order = "" if value.contiguous else f", in the order {value.dim_order}"
        dynamism = "" if value.dynamism == "static" else f", {value.dynamism}"
        planned = "planned" if value.planned else "by the caller"
        yield f"{direction} {number}", f"{value.dtype or value.kind} {shape}{order}{dynamism}, {planned}"


def _contents(a: ProgramFacts, b: ProgramFacts) -> Iterator[Difference]:
    if [segment.size for segment in a.segments] != [segment.size for segment in b.segments]:
        return
    held = [{data.segment: data.key for data in program.named_data} for program in (a, b)]
    parts = [("the program", 0, 0, a.program_size, b.program_size)]
    for index, (x, y) in enumerate(zip(a.segments, b.segments, strict=True)):
        # the same name is the same bytes, or as good as: exporters name weights by their hash
        name = f" ({held[0][index]})" if index in held[0] and held[0][index] == held[1].get(index) else ""
        parts.append((f"segment {index}{name}", x.offset, y.offset, x.size, y.size))
    for name, start, other, size, length in parts:
        first, second = _sha256(a.path, start, size), _sha256(b.path, other, length)
        if first != second:
            yield Difference(f"bytes of {name}", f"sha256 {first[:12]}", f"sha256 {second[:12]}")


def _sha256(path: Path, start: int, size: int) -> str:
    digest = hashlib.sha256()
    if size:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
            view[start : start + size] as part,
        ):
            digest.update(part)
    return digest.hexdigest()
