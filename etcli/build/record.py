"""What a build was made from, kept beside it: an unchanged record means that nothing has to be done, a changed one says why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pydantic

from etcli import __version__
from etcli.build.android import AndroidSettings
from etcli.build.apps import JNI_VARIABLE
from etcli.build.render import MACHINE_FILE, OWN_FOLDER, Toolset
from etcli.common.errors import EtcliError
from etcli.common.hashing import value_sha256
from etcli.manifests.base import Manifest
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain.executorch import ExecutorchPackage

RECORD = "build-record.json"

_FOLDER = "folder of "
_HASH = re.compile(r"[0-9a-f]{64}")


class BuildRecord(Manifest):
    """Inputs by name, as short texts that a person can compare.

    A difference in `tree` needs a configuration from nothing, one in `project` a configuration, one in `content` only a compilation.
    """

    tree: dict[str, str] = pydantic.Field(description="what CMake's cache cannot follow when it changes")
    project: dict[str, str] = pydantic.Field(description="hashes of the rendered files")
    content: dict[str, str] = pydantic.Field(description="what is compiled, and for whom")


def make_record(
    folder: Path,
    files: Mapping[str, str],
    tools: Toolset,
    sources: Mapping[str, str],
    recipe_sha256: str,
    *,
    own: Sequence[OperatorLibrary] = (),
    android: AndroidSettings | None = None,
) -> BuildRecord:
    """The record of a build in `folder` from these inputs.

    Args:
        files: the rendered project.
        sources: native source files, relative path to hash.
        own: operator libraries of the user's own.
    """
    return BuildRecord(
        tree={
            "build folder": str(folder),
            "compiler": f"{tools.compiler.description} ({tools.compiler.stamp})",
            "ExecuTorch": f"{tools.executorch.version} ({tools.executorch.root}, {library_stamp(tools.executorch)})",
            "ninja": str(tools.ninja),
            **(
                {"NDK": f"{tools.ndk.release} {tools.ndk.revision} ({tools.ndk.root})"} if tools.ndk is not None else {}
            ),
            **({"API level": str(android.api_level), "C++ runtime": android.stl} if android is not None else {}),
            "machine paths": value_sha256(_without_own(files[MACHINE_FILE])),
            "toolchain file": value_sha256(files.get("toolchain.cmake", "")),
            **{f"{_FOLDER}{library.name}": str(library.root) for library in own},
        },
        project={name: value_sha256(text) for name, text in files.items()},
        content={
            "etcli": __version__,
            "recipe": recipe_sha256,
            "native sources": value_sha256(dict(sources)),
            **{f"operator library {library.name}": library.sha256 for library in own},
        },
    )


def read_record(path: Path) -> BuildRecord | None:
    """The record at `path`, or None where there is none that this etcli understands."""
    try:
        return BuildRecord.read(path)
    except (OSError, EtcliError):
        return None


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names whose values differ."""
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def explained(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Each difference as a sentence, with both values where a person can read them."""

    def sentence(name: str) -> str:
        values = [before.get(name, "nothing"), now.get(name, "nothing")]
        if any(_HASH.fullmatch(value) for value in values):
            return f"{name} changed"
        return f"{name} changed from {values[0]} to {values[1]}"

    return [sentence(name) for name in changed(before, now)]


def tree_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Why a tree of the record's part `before` cannot go on as one of `now`, as sentences.

    A folder of operators that is new, or no longer there, is nothing that the cache holds; one that moved is.
    """
    both = {name for name in {*before, *now} if not name.startswith(_FOLDER)} | (before.keys() & now.keys())
    return explained(*({name: side[name] for name in both if name in side} for side in (before, now)))


def _without_own(machine: str) -> list[str]:
    """The lines of `machine.cmake` that are there whatever operators are, and whether there is a library for apps: CMake keeps no value of those."""
    return [line for line in machine.splitlines() if f"({OWN_FOLDER}" not in line and JNI_VARIABLE not in line]


def library_stamp(package: ExecutorchPackage) -> str:
    """A short text that changes when a library of the package is replaced."""
    entries = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in package.library_files()]
    return value_sha256(entries)[:12]
