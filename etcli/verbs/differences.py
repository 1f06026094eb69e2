"""Two things of one kind held against one another, leaf by leaf: only what differs is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etcli.common.errors import UsageError
from etcli.output.document import to_plain
from etcli.verbs.bundle_differences import bundle_differences
from etcli.verbs.inspect import Inspection, inspect
from etcli.verbs.program_differences import Difference, program_differences, unequal

_KEYS = ("name", "path", "key")
"""What tells the members of a list apart; without any of them it is their place."""

KINDS = {
    "program": "a program",
    "bundle": "a bundle",
    "build": "a build",
    "elf": "an ELF file",
    "checkpoint": "a checkpoint",
}
"""The kinds of things in words."""


@dataclass(frozen=True)
class Differences:
    """How `b` differs from `a`, both of `kind`."""

    a: Path
    b: Path
    kind: str
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def inspect_both(a: Path, b: Path) -> Differences:
    """Look into both and compare. Of programs with the same parts the bytes of each part are compared too.

    Raises:
        UsageError: they are of different kinds, or one is nothing that etcli knows.
        EtcliError: one is damaged.
    """
    first, second = inspect(a), inspect(b)
    if first.kind != second.kind:
        raise UsageError(
            f"{a} is {KINDS[first.kind]}, {b} is {KINDS[second.kind]}",
            code="inspect.kinds",
            hint="Compare two of one kind; `etcli inspect PATH` looks into one.",
        )
    if first.program is not None and second.program is not None:
        return Differences(a, b, first.kind, tuple(program_differences(first.program, second.program)))
    left, right = _leaves(first), _leaves(second)
    if first.bundle is not None and second.bundle is not None:
        return Differences(a, b, first.kind, tuple(bundle_differences(first.bundle, second.bundle, left, right)))
    return Differences(a, b, first.kind, tuple(unequal("", left, right)))


def _leaves(inspection: Inspection) -> dict[str, str]:
    facts = to_plain(getattr(inspection, inspection.kind))
    if inspection.registered is not None:
        facts = {**facts, "registers": to_plain(inspection.registered)}
    return dict(_walk("", facts))


def _walk(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The leaves below `value` with the path that leads to each."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        for item in value:  # sets of names: what came or went, and not two long lists
            yield f"{name}[{item}]", "there"
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for label, item in zip(_labels(value), value, strict=True):
            named = isinstance(item, Mapping)  # its name is in the path
            yield from _walk(
                f"{name}[{label}]", {key: part for key, part in item.items() if part != label} if named else item
            )
    else:
        yield name, _text(value)


def _labels(items: Sequence[Any]) -> list[str]:
    for key in _KEYS:
        labels = [item.get(key) if isinstance(item, Mapping) else None for item in items]
        if all(isinstance(label, str) and label for label in labels) and len(set(labels)) == len(labels):
            return [str(label) for label in labels]
    return [str(index) for index in range(len(items))]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
