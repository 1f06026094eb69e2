"""Operator libraries: what to compile for which processor, and what it registers, from the `op.yaml` beside the sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import BuildError, EtcliError
from etcli.common.hashing import file_sha256, value_sha256
from etcli.tables.op_yaml import DESCRIPTION, listed_sources, read_description

ATTENTION = "attention"
"""Folder under `native/` of the operators that chunks with `cache: ring` need."""

AQLM = "aqlm"
"""Folder under `native/` of the operators that chunks of precision `aqlm` need."""

OFFERED = (AQLM,)
"""Folders under `native/` that `build.custom_ops` names."""

_TESTS = "tests"
_COMPILED = re.compile(r"\.(c|cc|cpp|cxx|def|h|hh|hpp|hxx|h\+\+|i|impl|inc|inl|ipp|tcc|tpp|txx)")
_MAX_FILES = 5000


@dataclass(frozen=True)
class OperatorLibrary:
    """Sources that register operators with ExecuTorch; or delegates, see `tables/delegates.py`.

    `root` is their folder, `schemas` the operators' schemas without namespace, `sources` what is compiled for every processor,
    `architectures` what is added for one (the first part of a compiler's triple), with flags for that file alone; `flags` and `definitions`
    are for all of them; `components` are the parts of ExecuTorch's package that it is linked with, `hashes` the SHA-256 of every file by
    path relative to `root`. `torch` are the sources of a PyTorch binding, which the library for ExecuTorch is compiled without; `openmp` is
    whether the sources can use OpenMP. `own` is whether the folder is the user's own, not one of etcli's. `backends` are the ids of its
    delegates, `system_libraries` what `-l` takes of the target's own libraries, `android_libraries` what it takes on Android beside them.
    `api_level` is the lowest Android API level whose functions the sources can do with, None where every one has all they call.
    """

    name: str
    root: Path
    namespace: str
    schemas: tuple[str, ...]
    sources: tuple[str, ...]
    architectures: Mapping[str, Mapping[str, tuple[str, ...]]]
    definitions: tuple[str, ...]
    components: tuple[str, ...]
    hashes: Mapping[str, str]
    torch: tuple[str, ...] = ()
    openmp: bool = False
    flags: tuple[str, ...] = ()
    own: bool = False
    backends: tuple[str, ...] = ()
    system_libraries: tuple[str, ...] = ()
    android_libraries: tuple[str, ...] = ()
    api_level: int | None = None

    @property
    def operators(self) -> tuple[str, ...]:
        """What it has to register, as `etcli::last_row.out`, in alphabetical order."""
        return tuple(sorted(f"{self.namespace}::{schema.partition('(')[0]}" for schema in self.schemas))

    @property
    def sha256(self) -> str:
        """SHA-256 over what it is made of, wherever the folder stands."""
        return value_sha256(dict(self.hashes))

    def special(self, triple: str) -> Mapping[str, tuple[str, ...]]:
        """Sources of their own and their flags for a compiler that builds for `triple`."""
        return self.architectures.get(triple.split("-")[0], {})


def read_operators(root: Path, *, own: bool = False, error: type[EtcliError] = BuildError) -> OperatorLibrary:
    """The operator library in the folder `root`; `own` when it is the user's.

    Raises:
        EtcliError: of class `error`, code `operators.invalid`: its description is missing or wrong, or names a file that is not there; every
            fault with its line; `operators.name`, `operators.namespace`, `operators.twice`: the user's has a name that is taken;
            `operators.unreadable`: a source cannot be read.
    """
    if own:
        read = read_description(
            root, error=error, hint="docs/custom-operators.md lists the keys and what they take.", own=True
        )
    else:
        head, hint = "the operator library cannot be used: ", "Reinstall etcli, or undo the change."
        read = read_description(root, error=error, hint=hint, head=head)
    return OperatorLibrary(
        name=read.name,
        root=root,
        namespace=read.namespace,
        schemas=read.operators,
        sources=read.sources,
        architectures=read.architectures,
        definitions=read.definitions,
        components=tuple(dict.fromkeys(("runtime", *read.components))),
        hashes=source_hashes(root, (*listed_sources(read), DESCRIPTION), error),
        torch=read.torch,
        openmp=read.openmp,
        flags=read.flags,
        own=own,
        api_level=read.api_level,
    )


def source_hashes(root: Path, listed: Sequence[str], error: type[EtcliError]) -> dict[str, str]:
    """SHA-256, by path relative to `root`, of what is listed and of every file that it may include from the folder.

    Tests and hidden folders (a workspace, a repository) are none of it.

    Raises:
        EtcliError: of class `error`, code `operators.invalid`: there are far too many; `operators.unreadable`: one cannot be read.
    """
    files = [root / name for name in listed]
    for file in root.rglob("*"):
        parts = file.relative_to(root).parts
        if _COMPILED.fullmatch(file.suffix) and parts[0] != _TESTS and not any(part.startswith(".") for part in parts):
            files.append(file)
        if len(files) > _MAX_FILES:
            raise error(
                f"there are more than {_MAX_FILES} sources below {root}",
                code="operators.invalid",
                hint=f"Put {DESCRIPTION} and its sources into a folder of their own.",
                file=root / DESCRIPTION,
            )
    try:
        return {file.relative_to(root).as_posix(): file_sha256(file) for file in sorted(set(files)) if file.is_file()}
    except OSError as problem:
        raise error(
            f"{problem.filename or root} cannot be read: {problem.strerror or problem}",
            code="operators.unreadable",
            hint="Check its permissions.",
            file=root / DESCRIPTION,
        ) from None
