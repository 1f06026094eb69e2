"""Which instructions a compiler's options make use of, and which a device's CPU has, from `toolchains/cpu.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pydantic

from etcli.tables.reading import Row, Table, read_table

Abi = Literal["x86_64", "arm64-v8a"]


class Version(Row):
    """An -march name: what it adds to another."""

    from_: str | None = pydantic.Field(alias="from")
    adds: tuple[str, ...] = pydantic.Field(strict=False)


class Instructions(Row):
    """The instruction sets of one ABI; see the head of the file."""

    cpuinfo: str
    baseline: str
    versions: Mapping[str, Version]
    cpus: Mapping[str, str]
    features: Mapping[str, tuple[str, ...]]
    options: Mapping[str, str]

    @pydantic.field_validator("features", mode="before")
    @classmethod
    def _tuples(cls, value: object) -> object:
        return {name: tuple(words) for name, words in value.items()} if isinstance(value, Mapping) else value

    @pydantic.model_validator(mode="after")
    def _closed(self) -> Instructions:
        for name, version in self.versions.items():
            if version.from_ is not None and version.from_ not in self.versions:
                raise ValueError(f"{name} comes from {version.from_}, which is no version")
            if unknown := set(version.adds) - set(self.features):
                raise ValueError(f"{name} adds {', '.join(sorted(unknown))}, which are no features")
        if unknown := set(self.options.values()) - set(self.features):
            raise ValueError(f"options name {', '.join(sorted(unknown))}, which are no features")
        for name, march in (("baseline", self.baseline), *self.cpus.items()):
            if march.split("+")[0] not in self.versions:
                raise ValueError(f"{name} is {march}, which is no version")
        return self

    def used(self, flags: Sequence[str]) -> frozenset[str]:
        """Features that code compiled with `flags` may use, beyond the baseline's; an option in no list stands there as it is written.

        As in compilers, of several -march (and of several -mcpu) the last one counts.
        """
        last: dict[str, str] = {}
        found: set[str] = set()
        for flag in flags:
            key, _, value = flag.partition("=")
            if key in ("-march", "-mcpu"):
                last[key] = value
            elif flag in self.options:
                found.add(self.options[flag])
            elif flag.startswith("-mno-") and (name := self.options.get(f"-m{flag[5:]}")) is not None:
                found.discard(name)
        for key, value in last.items():
            name, *extensions = value.split("+")
            known = self._march(self.cpus.get(name, name) if key == "-mcpu" else name)
            if known is None:
                found.add(f"{key}={name}")
                continue
            found |= known
            for extension in extensions:
                if extension.startswith("no") and extension[2:] in self.features:
                    found.discard(extension[2:])
                elif extension in self.features:
                    found.add(extension)
                else:
                    found.add(f"{key}={name}+{extension}")
        return frozenset(found - (self._march(self.baseline) or frozenset()))

    def _march(self, march: str) -> frozenset[str] | None:
        name, *extensions = march.split("+")
        if name not in self.versions:
            return None
        found = set(extensions)
        step: str | None = name
        while step is not None:
            found.update(self.versions[step].adds)
            step = self.versions[step].from_
        return frozenset(found)

    def in_cpuinfo(self, features: frozenset[str]) -> tuple[str, ...]:
        """What /proc/cpuinfo has to list for code that uses `features`, in alphabetical order."""
        return tuple(sorted({word for feature in features for word in self.features.get(feature, (feature,))}))

    def listed(self, cpuinfo: str) -> frozenset[str] | None:
        """What the text of /proc/cpuinfo lists for every CPU of the machine; None where it is another kind of machine's.

        Phones have cores of several kinds, and a thread runs on any of them.
        """
        lists = [
            frozenset(words.split())
            for key, separator, words in (line.partition(":") for line in cpuinfo.splitlines())
            if separator and key.strip() == self.cpuinfo
        ]
        return frozenset.intersection(*lists) if lists else None


class Dispatched(Row):
    """A source of others that is chosen from at run time, by the end of its path, and the options that it may have."""

    path: str
    options: tuple[str, ...] = pydantic.Field(strict=False)


class _Cpu(Table):
    dispatched: tuple[Dispatched, ...] = pydantic.Field(strict=False)
    arm64: Instructions = pydantic.Field(alias="arm64-v8a")
    x86_64: Instructions


@functools.lru_cache(maxsize=1)
def _table() -> _Cpu:
    return read_table("cpu.yaml", _Cpu)


def dispatched_options(source: Path) -> tuple[str, ...]:
    """The options that a source of others may have since it is chosen from at run time; none for one that is not in the table."""
    return next((row.options for row in _table().dispatched if source.as_posix().endswith(f"/{row.path}")), ())


def instructions(abi: Abi) -> Instructions:
    """The instruction sets of an ABI.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return _table().x86_64 if abi == "x86_64" else _table().arm64
