"""The operators of etcli's own that a program needs, for ExecuTorch's Python runtime: which library has them, compiled and loaded."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from etcli.common.assets import asset_dir
from etcli.ops.library import aqlm_library, attention_library
from etcli.ops.loading import load_into_executorch
from etcli.output.console import Console
from etcli.tables.operators import AQLM, ATTENTION, read_operators

_BUILT = {ATTENTION: attention_library, AQLM: aqlm_library}
"""By folder under `native/`."""


def needed_libraries(operators: Iterable[str]) -> tuple[str, ...]:
    """The folders under `native/` whose libraries have any of `operators` (as `etcli::last_row.out`), each once, in a fixed order.

    Raises:
        BuildError: the description of a library is wrong.
    """
    wanted = set(operators)
    return tuple(folder for folder, offered in _offered().items() if wanted & offered)


def built_libraries(operators: Iterable[str], console: Console | None = None) -> tuple[Path, ...]:
    """The libraries that have any of `operators`, compiled now where the cache does not hold them.

    Raises:
        ToolError: as `ops.library.built_library`.
    """
    return tuple(_BUILT[folder](console) for folder in needed_libraries(operators))


def load_needed(operators: Iterable[str]) -> None:
    """Load the libraries that have any of `operators` into this process, for the runtime to find. What none has is not looked for.

    A library that this process has loaded stays the one that it uses, should its sources change meanwhile.

    Raises:
        ToolError: as `ops.library.built_library` and `ops.loading.load_into_executorch`.
    """
    for folder in needed_libraries(operators):
        _load(folder)


@functools.cache
def _load(folder: str) -> None:
    load_into_executorch(_BUILT[folder](None))


@functools.cache
def _offered() -> Mapping[str, frozenset[str]]:
    return {folder: frozenset(read_operators(asset_dir("native") / folder).operators) for folder in _BUILT}
