"""The native sources of a build: `native/runner` and its list `sources.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic
import yaml

from etcli.common.errors import BuildError
from etcli.common.hashing import file_sha256

LIST = "sources.yaml"
_COMPILED = (".cpp", ".h", ".cc", ".hpp", ".inc")

_File = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*\.(cpp|cc)$")]
_Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _List(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    library: tuple[_File, ...] = pydantic.Field(min_length=1)
    programs: dict[_Name, _File] = pydantic.Field(min_length=1)
    definitions: tuple[_Name, ...] = ()


@dataclass(frozen=True)
class RunnerSources:
    """What is compiled.

    `root` is the folder of the sources, `library` what all programs share, `programs` maps a program to its own source, `definitions` are
    the macros that a build gives values to, `hashes` the SHA-256 of every file by path relative to `root`.
    """

    root: Path
    library: tuple[str, ...]
    programs: Mapping[str, str]
    definitions: tuple[str, ...]
    hashes: Mapping[str, str]


def read_sources(native: Path) -> RunnerSources:
    """The sources under `native/runner`.

    Raises:
        BuildError: code `build.sources`: the list is missing or invalid, or names a file that is not there.
    """
    root = native / "runner"
    path = root / LIST
    try:
        listed = _List.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError, pydantic.ValidationError) as error:
        raise _bad(path, " ".join(str(error).split())) from None
    absent = [name for name in (*listed.library, *listed.programs.values()) if not (root / name).is_file()]
    if absent:
        raise _bad(path, f"it lists files that are not there: {', '.join(absent)}")
    hashes = {
        file.relative_to(root).as_posix(): file_sha256(file)
        for file in sorted(root.rglob("*"))
        if file.suffix in _COMPILED and file.relative_to(root).parts[0] != "tests"
    }
    return RunnerSources(
        root, listed.library, dict(listed.programs), listed.definitions, {**hashes, LIST: file_sha256(path)}
    )


def _bad(path: Path, why: str) -> BuildError:
    return BuildError(
        f"the native sources cannot be used: {why}",
        code="build.sources",
        hint="Reinstall etcli, or undo the change.",
        file=path,
    )
