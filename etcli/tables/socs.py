"""The SoCs whose NPU can be compiled for, and how a device tells which it has, from `toolchains/socs.yaml`."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

import pydantic

from etcli.tables.reading import Row, Table, read_table

_Id = Annotated[str, pydantic.StringConstraints(pattern=r"^mt[0-9]{4}$")]
_Names = Annotated[tuple[str, ...], pydantic.Field(strict=False)]


class Variant(Row):
    """Chips of a SoC's family under names of their own; that networks compiled for the SoC run on them is not known."""

    names: _Names
    models: _Names


class KnownSoc(Row):
    """A chip that has a name. `certain` is whether its marketing name is upstream's own or knowledge from elsewhere."""

    id: _Id
    name: str
    certain: bool
    aliases: _Names

    @property
    def title(self) -> str:
        """The id with the marketing name, marked where that is not upstream's own."""
        return f"{self.id} ({self.name}{'' if self.certain else ', not validated'})"

    def answers_to(self, name: str) -> bool:
        """Whether `name` (an id, an alias or the marketing name, in any case, spaced or hyphenated) means this chip."""
        return _plain(name) in {_plain(own) for own in self.every_name}

    @property
    def every_name(self) -> tuple[str, ...]:
        """Id, marketing name and aliases."""
        return (self.id, self.name, *self.aliases)


class Soc(KnownSoc):
    """A chip whose NPU can be compiled for. `march` is the instruction set that all its cores have, as compilers' `-march` takes it."""

    npu: Literal["neuron"]
    march: Annotated[str, pydantic.StringConstraints(pattern=r"^armv[89](\.[0-9])?-a(\+[a-z0-9]+)*$")]
    variants: tuple[Variant, ...] = pydantic.Field(strict=False)

    def has_variant(self, name: str) -> bool:
        """Whether `name` means a variant of this chip, by its marketing name or as a property has it: `MT6991Z` is one of mt6991."""
        listed = {_plain(own) for variant in self.variants for own in (*variant.names, *variant.models)}
        return _plain(name) in listed or re.match(rf"{self.id}[^0-9\s]", name.strip().lower()) is not None


class _Socs(Table):
    properties: tuple[str, ...] = pydantic.Field(strict=False, min_length=1)
    socs: tuple[Soc, ...] = pydantic.Field(strict=False, min_length=1)
    unsupported: tuple[KnownSoc, ...] = pydantic.Field(strict=False)

    @pydantic.model_validator(mode="after")
    def _one_meaning(self) -> _Socs:
        names = [plain for soc in (*self.socs, *self.unsupported) for plain in {_plain(own) for own in soc.every_name}]
        names += [_plain(own) for soc in self.socs for one in soc.variants for own in {*one.names, *one.models}]
        if len(set(names)) != len(names):
            raise ValueError("one name stands for two SoCs")
        return self


@dataclass(frozen=True)
class Told:
    """What a device's properties say of its SoC.

    Attributes:
        values: each property of the table that the device has, as it stands there.
        ids: the SoCs, supported or not, that the values mean: one, none where the chip is in no table, several where they contradict.
        variant: a value that is a variant's name, None where none is.
    """

    values: Mapping[str, str]
    ids: frozenset[str]
    variant: str | None

    @property
    def text(self) -> str:
        """For people: `MT6991Z (ro.soc.model), mt6991 (ro.board.platform)`."""
        return ", ".join(f"{value[:60]} ({name})" for name, value in self.values.items()) or "of an unknown SoC"


@functools.lru_cache(maxsize=1)
def _table() -> _Socs:
    return read_table("socs.yaml", _Socs)


def load_socs() -> Mapping[str, Soc]:
    """Every SoC by id, in the order of the file.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return MappingProxyType({soc.id: soc for soc in _table().socs})


def soc_properties() -> tuple[str, ...]:
    """The device's properties that may tell its SoC, the most telling first."""
    return _table().properties


def find_soc(name: str) -> Soc | None:
    """The SoC that `name` means, or None."""
    return next((soc for soc in load_socs().values() if soc.answers_to(name)), None)


def unknown_soc_hint(name: str) -> str:
    """What to do about a `name` that `find_soc` does not know: the SoC that was meant, and all there are."""
    every = ", ".join(soc.title for soc in load_socs().values())
    for soc in load_socs().values():
        if soc.has_variant(name):
            return (
                f"It is a variant of {soc.title}: platform {soc.id} is the one to compile for, but networks for it are not "
                "validated on the variant."
            )
    for known in _table().unsupported:
        if known.answers_to(name):
            return f"ExecuTorch's backend compiles nothing for {known.title}. It does for {every}."
    spelt = {_plain(own): own for soc in load_socs().values() for own in soc.every_name}
    close = difflib.get_close_matches(_plain(name[:100]), spelt, n=1, cutoff=0.75)
    meant = f"Did you mean {spelt[close[0]]}? " if close else ""
    return f"{meant}Use the id, an alias or the name of one of {every}."


def told_soc(properties: Mapping[str, str]) -> Told:
    """Which SoC a device with `properties` has."""
    table = _table()
    values = {name: properties[name] for name in table.properties if properties.get(name, "").strip()}
    ids, variant = set[str](), None
    for value in values.values():
        for known in (*table.socs, *table.unsupported):
            if known.answers_to(value):
                ids.add(known.id)
            elif isinstance(known, Soc) and known.has_variant(value):
                ids.add(known.id)
                variant = variant or value
    return Told(MappingProxyType(values), frozenset(ids), variant)


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char not in " -_")
