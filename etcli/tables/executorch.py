"""The parts of ExecuTorch that builds link, by provider, from `toolchains/executorch.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Annotated

import pydantic

from etcli.common.errors import ToolError
from etcli.tables.reading import Row, Table, read_table

_List = pydantic.Field(strict=False)
_Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
_Option = Annotated[str, pydantic.StringConstraints(pattern=r"^(EXECUTORCH|CMAKE)_[A-Z0-9_]+$")]


class ExecutorchComponent(Row):
    """One part: in-tree `targets`, those of them that are linked `whole`, and the `options` and `submodules` that bring them."""

    targets: Annotated[tuple[_Name, ...], _List] = pydantic.Field(min_length=1)
    whole: Annotated[tuple[_Name, ...], _List]
    options: Annotated[tuple[_Option, ...], _List]
    submodules: Annotated[tuple[str, ...], _List]

    @pydantic.model_validator(mode="after")
    def _whole_are_targets(self) -> ExecutorchComponent:
        if unknown := set(self.whole) - set(self.targets):
            raise ValueError(f"whole names what is no target: {', '.join(sorted(unknown))}")
        return self


class _Project(Row):
    options: Mapping[_Option, str]
    submodules: Annotated[tuple[str, ...], _List]


class ExecutorchTable(Table):
    """The whole table."""

    components: Mapping[_Name, ExecutorchComponent]
    project: _Project

    def chosen(self, names: Iterable[str]) -> dict[str, ExecutorchComponent]:
        """The rows of these components, each once, in order.

        Raises:
            ToolError: code `executorch.unknown_component`: a name has no row, so that only a wheel can bring it.
        """
        wanted = list(dict.fromkeys(names))
        if unknown := [name for name in wanted if name not in self.components]:
            raise ToolError(
                f"it is not known how an ExecuTorch built from source names {', '.join(unknown)}",
                code="executorch.unknown_component",
                hint="Add a row to toolchains/executorch.yaml, or use build.executorch: {from: wheel}.",
            )
        return {name: self.components[name] for name in wanted}

    def options(self, names: Iterable[str]) -> dict[str, str]:
        """What the CMake project is configured with for these components: exactly what they need, and what every configuration has."""
        needed = {option: "ON" for row in self.chosen(names).values() for option in row.options}
        return {**self.project.options, **needed}

    def submodules(self, names: Iterable[str]) -> tuple[str, ...]:
        """The Git submodules that such a configuration compiles, in alphabetical order."""
        needed = {path for row in self.chosen(names).values() for path in row.submodules}
        return tuple(sorted({*needed, *self.project.submodules}))


@functools.lru_cache(maxsize=1)
def load_executorch() -> ExecutorchTable:
    """The table.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return read_table("executorch.yaml", ExecutorchTable)
