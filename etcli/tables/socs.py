"""The SoCs whose NPU can be compiled for, from `toolchains/socs.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import pydantic

from etcli.tables.reading import Row, Table, read_table


class Soc(Row):
    """One chip. `certain` is whether its marketing name is upstream's own or knowledge from elsewhere."""

    id: str = pydantic.Field(pattern=r"^mt[0-9]{4}$")
    name: str
    certain: bool
    npu: Literal["neuron"]
    aliases: tuple[str, ...] = pydantic.Field(strict=False)

    def answers_to(self, name: str) -> bool:
        """Whether `name` (an id, an alias or the marketing name, in any case, spaced or hyphenated) means this chip."""
        return _plain(name) in {_plain(own) for own in (self.id, self.name, *self.aliases)}


class _Socs(Table):
    socs: tuple[Soc, ...] = pydantic.Field(strict=False, min_length=1)

    @pydantic.model_validator(mode="after")
    def _one_meaning(self) -> _Socs:
        names = [plain for soc in self.socs for plain in {_plain(own) for own in (soc.id, soc.name, *soc.aliases)}]
        if len(set(names)) != len(names):
            raise ValueError("one name stands for two SoCs")
        return self


@functools.lru_cache(maxsize=1)
def load_socs() -> Mapping[str, Soc]:
    """Every SoC by id, in the order of the file.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return MappingProxyType({soc.id: soc for soc in read_table("socs.yaml", _Socs).socs})


def find_soc(name: str) -> Soc | None:
    """The SoC that `name` means, or None."""
    return next((soc for soc in load_socs().values() if soc.answers_to(name)), None)


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char not in " -_")
