"""What a recipe left in the workspace, or on the device, removed; nothing else touched."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etcli.build.record import RECORD
from etcli.build.render import BINARY_DIR, MACHINE_FILE
from etcli.common.errors import EtcliError
from etcli.common.files import remove_tree
from etcli.common.locks import exclusive, holder
from etcli.common.workspace import Workspace
from etcli.deploy.clean import clean as clean_deployment
from etcli.device.base import Device
from etcli.export.source import remove_quantised
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import load_targets

# What the stages make, as patterns of names, folder by folder: whatever has another name was put there by somebody else.
_HOME = (".lock", "bundle", "bundle.recipe.yaml", "deploy", "export")
_RUNS = ("[0-9]" * 8 + "T" + "[0-9]" * 6 + ".*Z",)
_BUILD = (
    "CMakeLists.txt",
    "CMakePresets.json",
    "toolchain.cmake",
    MACHINE_FILE,
    BINARY_DIR,
    RECORD,
    "manifest.json",
    "stage",
    ".stage.*",
    "logs",
)


@dataclass(frozen=True)
class Cleaned:
    """How many files went, and from where; `kept` are paths below that place which etcli did not make.

    `quantised` is the checkpoint that `model.quantize` had made in the cache, and `quantised_files` how many files of it went.
    """

    place: str
    files: int
    kept: tuple[str, ...] = ()
    quantised: str | None = None
    quantised_files: int = 0


@dataclass
class _Sweep:
    """Removes by name, and remembers what it leaves. No link is followed: etcli makes none. `locks` are removed and not counted."""

    locks: frozenset[Path] = frozenset()
    files: int = 0
    kept: list[Path] = field(default_factory=list)

    def folder(self, folder: Path, ours: Sequence[str], below: Sequence[str] = ()) -> Iterator[Path]:
        """Remove what has a name of `ours`; yields the folders named in `below`, and removes each that is empty afterwards."""
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.is_symlink():
                self.kept.append(path)
            elif path.name in below and path.is_dir():
                yield path
                _remove_empty(path)
            elif _is_one_of(path.name, ours):
                found = (entry for entry in (path, *path.rglob("*")) if entry.is_symlink() or entry.is_file())
                self.files += sum(entry not in self.locks for entry in found)
                remove_tree(path)
            else:
                self.kept.append(path)


def clean_workspace(workspace: Workspace, console: Console) -> Cleaned:
    """Remove what the stages made in `<workspace>/<name>`, and the folders that this leaves empty. Caches stay, as does what others put there.

    Whoever is at work there is waited for, and comes to an empty workspace if it started meanwhile.
    """
    home = workspace.home
    if not home.is_dir():
        return Cleaned(str(home), 0)
    targets = tuple(load_targets())
    locks = (workspace.use_lock, workspace.export_lock, *(workspace.build_lock(target) for target in targets))
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(exclusive(lock, on_wait=functools.partial(_say_waiting, home, lock, console)))
        sweep = _swept(workspace, targets, _Sweep(frozenset(locks)))
    return Cleaned(str(home), sweep.files, tuple(path.relative_to(home).as_posix() for path in sweep.kept))


def _say_waiting(home: Path, lock: Path, console: Console) -> None:
    console.note(f"waiting for another process that uses {home}: {holder(lock)}")


def _swept(workspace: Workspace, targets: tuple[str, ...], sweep: _Sweep) -> _Sweep:
    beside = [name for target in targets for name in (workspace.build_lock(target).name, f"{target}.recipe.yaml")]
    for folder in sweep.folder(workspace.home, _HOME, (workspace.runs.name, workspace.builds.name)):
        if folder == workspace.runs:
            list(sweep.folder(folder, _RUNS))
        else:
            for build in sweep.folder(folder, beside, targets):
                list(sweep.folder(build, _BUILD))
    for folder in (workspace.home, workspace.root):
        _remove_empty(folder)
    return sweep


def clean_quantised(loaded: LoadedRecipe, cleaned: Cleaned, console: Console) -> Cleaned:
    """`cleaned`, with the checkpoint that `model.quantize` made for the recipe removed from the cache as well: no other recipe needs it for long."""
    try:
        found = remove_quantised(loaded, console)
    except EtcliError as error:  # of a source that is gone or wrong there is nothing that could be told apart
        console.detail(f"    what model.quantize made is not looked for: {error}")
        return cleaned
    if found is None or not found[1]:
        return cleaned
    return dataclasses.replace(cleaned, quantised=str(found[0]), quantised_files=found[1])


def clean_device(loaded: LoadedRecipe, device: Device, console: Console) -> Cleaned:
    """Remove the recipe's deployment from `device`.

    Raises:
        DeployError: the folder is not this recipe's.
    """
    removed = clean_deployment(loaded, device, console)
    return Cleaned(f"{device.serial}:{loaded.recipe.device_dir}", removed)


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    """Whether `name` is one of them, or the unfinished file of an atomic write of one that is no pattern."""
    return any(
        fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f".{pattern}.*.tmp") for pattern in patterns
    )


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()
