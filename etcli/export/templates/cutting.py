"""Makes a template of a program that was lowered with weights: every constant must be accounted for, or there is none."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import ExportError
from etcli.export.templates.template import Hole, NamePlaces, Refused, Template
from etcli.pte.facts import ProgramFacts
from etcli.pte.read import read_program

_PADDING = 64
"""More than any alignment of constants: a constant's place may be so much longer than the constant."""


@dataclass(frozen=True)
class Constant:
    """What a network's constant may stand as in a program: where it is from, its size in bytes and their hex SHA-256."""

    parameter: str
    part: str
    size: int
    sha256: str


@dataclass(frozen=True)
class _Place:
    """Bytes of the file that hold one constant. `exact`: all of them, not followed by padding."""

    offset: int
    size: int
    exact: bool


def cut(
    path: Path, methods: Sequence[str], weights: Iterable[Constant], fixed: Iterable[Constant]
) -> tuple[Template, bytes]:
    """The template of the program in `path`, and its skeleton.

    Args:
        methods: names of its methods.
        weights: all constants that are made from weights.
        fixed: all others that the network has.

    Raises:
        Refused: a constant in the file is neither, a weight is not there exactly once, or a name stands where it cannot be told from other text.
    """
    facts = read_program(path, error=ExportError)
    by_digest = _by_digest(weights)
    steady = {constant.sha256: constant for constant in fixed}
    if by_digest.keys() & steady.keys():
        raise Refused("a weight equals a constant of the network, so that both were written once")
    sizes = {constant.size for constant in (*by_digest.values(), *steady.values())}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        found: list[tuple[_Place, Constant]] = []
        for place in _places(facts):
            constant = _identified(mapped, place, sizes, by_digest, steady)
            if constant is not None:
                found.append((_Place(place.offset, constant.size, exact=True), constant))
        _check_each_once(found, by_digest.values())
        _check_keys(facts, found)
        found.sort(key=lambda item: item[0].offset)
        skeleton = _without(mapped, [place for place, _ in found])
        size = len(mapped)
    return (
        Template(
            methods=tuple(NamePlaces(name=name, places=_name_places(skeleton, name)) for name in methods),
            holes=tuple(
                Hole(
                    parameter=constant.parameter,
                    part=constant.part,
                    offset=place.offset,
                    size=constant.size,
                    digests=_occurrences(skeleton, constant.sha256.encode()),
                )
                for place, constant in found
            ),
            fixed=tuple(sorted(steady)),
            size=size,
        ),
        skeleton,
    )


def _by_digest(weights: Iterable[Constant]) -> dict[str, Constant]:
    found: dict[str, Constant] = {}
    for constant in weights:
        other = found.setdefault(constant.sha256, constant)
        if other is not constant:
            raise Refused(f"{other.parameter} and {constant.parameter} are equal, so that both were written once")
    return found


def _places(facts: ProgramFacts) -> list[_Place]:
    named = {entry.segment for entry in facts.named_data}
    places = [_Place(facts.segments[index].offset, facts.segments[index].size, exact=True) for index in sorted(named)]
    return places + [_Place(constant.offset, constant.size, exact=False) for constant in facts.constants]


def _identified(
    mapped: mmap.mmap,
    place: _Place,
    sizes: set[int],
    weights: Mapping[str, Constant],
    fixed: Mapping[str, Constant],
) -> Constant | None:
    """The weight that stands at `place`; None for another constant."""
    shortest = place.size if place.exact else max(0, place.size - _PADDING)
    with memoryview(mapped) as whole:
        for size in sorted((size for size in sizes if shortest <= size <= place.size), reverse=True):
            if any(whole[place.offset + size : place.offset + place.size]):
                break  # what is cut off would be more than padding, and more still with a smaller size
            digest = hashlib.sha256(whole[place.offset : place.offset + size]).hexdigest()
            if digest in weights:
                return weights[digest]
            if digest in fixed:
                return None
    raise Refused(f"{place.size} bytes at {place.offset} are no constant that the network has")


def _check_each_once(found: Sequence[tuple[_Place, Constant]], weights: Iterable[Constant]) -> None:
    counts: dict[str, int] = {}
    for _, constant in found:
        counts[constant.sha256] = counts.get(constant.sha256, 0) + 1
    for constant in weights:
        if counts.get(constant.sha256, 0) != 1:
            raise Refused(f"{constant.parameter} stands {counts.get(constant.sha256, 0)} times in the program")


def _check_keys(facts: ProgramFacts, found: Sequence[tuple[_Place, Constant]]) -> None:
    """Each weight in named data must be known by its own hash, and by nothing else: only hashes are written anew in what is filled."""
    keys: dict[int, list[str]] = {}
    for entry in facts.named_data:
        keys.setdefault(facts.segments[entry.segment].offset, []).append(entry.key)
    for place, constant in found:
        for key in keys.get(place.offset, ()):
            if not key.endswith(constant.sha256):
                raise Refused(f"{constant.parameter} is filed under {key}, which is not the hash of its bytes")


def _without(mapped: mmap.mmap, places: Sequence[_Place]) -> bytes:
    pieces, position = [], 0
    for place in places:
        pieces.append(mapped[position : place.offset])
        position = place.offset + place.size
    return b"".join([*pieces, mapped[position:]])


def _name_places(skeleton: bytes, name: str) -> tuple[int, ...]:
    """Where a method's name stands: as a whole flatbuffer string, its length before it and a NUL after it."""
    word = name.encode()

    def whole(place: int) -> bool:
        length = int.from_bytes(skeleton[place - 4 : place], "little")
        return length == len(word) and skeleton[place + len(word) : place + len(word) + 1] == b"\0"

    places = _occurrences(skeleton, word, whole)
    if not places or len(places) != len(_occurrences(skeleton, word)):
        raise Refused(f"the name {name} stands in the program as a part of other text")
    return places


def _occurrences(skeleton: bytes, word: bytes, fits: Callable[[int], bool] | None = None) -> tuple[int, ...]:
    places, position = [], skeleton.find(word)
    while position >= 0:
        if fits is None or fits(position):
            places.append(position)
        position = skeleton.find(word, position + 1)
    return tuple(places)
