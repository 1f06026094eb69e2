"""What belongs on the device: the bundle below `bundle/`, the build's stage below `bin/`; and whether the local files are as promised."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem, Problems, StaleError
from etcli.common.files import contained, write_if_changed
from etcli.common.hashing import file_sha256
from etcli.device.builds import LocalBuild
from etcli.manifests.base import FileEntry
from etcli.manifests.bundle import BundleManifest
from etcli.recipe.outdated import MANIFEST
from etcli.tokenizer.opening import open_tokenizer
from etcli.tokenizer.upstream import upstream_tokenizer


@dataclass(frozen=True)
class WantedFile:
    """A file to be on the device at `path` below the deployment folder, with its content at `local` on this machine.

    `renew` is the command that makes it anew also where its size and time look right. `vouched` says that it has not been touched since the manifest
    that lists it was written.
    """

    path: str
    local: Path
    size: int
    sha256: str
    executable: bool
    reason: str
    renew: str
    vouched: bool


@dataclass(frozen=True)
class Sources:
    """The two local folders of a deployment, the commands that renew them, and which runner is to find what in them.

    `made` is where files go that are made from the bundle for `runner`.
    """

    bundle_folder: Path
    bundle: BundleManifest
    bundle_sha256: str
    build: LocalBuild
    runner: str
    made: Path
    export_command: str
    build_command: str


def wanted_files(sources: Sources) -> tuple[WantedFile, ...]:
    """Every file of the deployment, the bundle's `manifest.json` included, sorted by path.

    Raises:
        StaleError: files are missing, of another size, or outside their folder: all of them at once.
        CheckpointError: the tokenizer cannot be written in the runner's format.
    """
    problems = Problems()
    found: list[WantedFile] = []
    manifest = sources.bundle_folder / MANIFEST
    own = FileEntry(path=MANIFEST, size=manifest.stat().st_size, sha256=sources.bundle_sha256)
    chunk_of = {file.path: chunk.index for chunk in sources.bundle.chunks for file in chunk.files}
    for entry in (own, *sources.bundle.deployed_files()):
        local = _local(sources.bundle_folder, entry, "bundle", sources.export_command, problems)
        only = f" --only-chunks {chunk_of[entry.path]}" if entry.path in chunk_of else ""
        found.append(
            WantedFile(
                path=f"bundle/{entry.path}",
                local=local,
                size=entry.size,
                sha256=entry.sha256,
                executable=False,
                reason="bundle",
                renew=f"{sources.export_command} --force{only}",
                vouched=_older(local, manifest),
            )
        )
    for staged in sources.build.manifest.stage:
        local = _local(sources.build.stage, staged, "build", sources.build_command, problems)
        found.append(
            WantedFile(
                path=f"bin/{staged.path}",
                local=local,
                size=staged.size,
                sha256=staged.sha256,
                executable=staged.executable,
                reason=staged.reason,
                renew=f"{sources.build_command} --clean",
                vouched=_older(local, sources.build.folder / MANIFEST),
            )
        )
    problems.raise_if_any(StaleError)
    found += _made_files(sources)
    return tuple(sorted(found, key=lambda file: file.path))


def _made_files(sources: Sources) -> list[WantedFile]:
    """What the runner needs and the bundle holds in another format."""
    make = _MADE.get(sources.runner)
    return [] if make is None else make(sources)


def _mtk_files(sources: Sources) -> list[WantedFile]:
    """The MediaTek runner reads the bundle's tokenizer itself, in the formats and with the neighbours of `tokenizer/upstream.py`."""
    path = sources.bundle_folder / sources.bundle.tokenizer.path
    made = upstream_tokenizer(open_tokenizer(path.parent), path, sources.bundle.model.stop_ids).made
    found = []
    for name, data in sorted(made.items()):
        local = sources.made / name
        write_if_changed(local, data)
        place = f"bundle/{sources.bundle.tokenizer.path}".rpartition("/")[0]
        digest = hashlib.sha256(data).hexdigest()
        found.append(
            WantedFile(
                path=f"{place}/{name}",
                local=local,
                size=len(data),
                sha256=digest,
                executable=False,
                reason="tokenizer of the mtk runner",
                renew=f"{sources.export_command} --force",
                vouched=True,
            )
        )
    return found


_MADE: Mapping[str, Callable[[Sources], list[WantedFile]]] = {"mtk": _mtk_files}


def verify_contents(files: tuple[WantedFile, ...]) -> None:
    """Hash local files before they are sent: nothing is changed on the device for the sake of a damaged file.

    Those that are vouched for are not read twice: what arrives is hashed on the device in any case.

    Raises:
        StaleError: files differ from their manifest: all of them at once.
    """
    problems = Problems()
    files = tuple(file for file in files if not file.vouched)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1), "etcli-hash") as pool:
        found = pool.map(lambda file: file_sha256(file.local), files)
    for file, sha256 in zip(files, found, strict=True):
        if sha256 != file.sha256:
            what = "bundle" if file.path.startswith("bundle/") else "build"
            problems.add(_damaged(what, file.local, "its content is not what the manifest says", file.renew))
    problems.raise_if_any(StaleError)


def _older(path: Path, manifest: Path) -> bool:
    """Whether nothing was written to `path`, and no other file put in its place, since `manifest` was written."""
    try:
        status, written = path.stat(), manifest.stat().st_mtime_ns
    except OSError:
        return False
    return max(status.st_mtime_ns, status.st_ctime_ns) <= written


def _local(root: Path, entry: FileEntry, what: str, command: str, problems: Problems) -> Path:
    try:
        path = contained(root, entry.path)
    except ValueError as error:
        problems.add(_damaged(what, root / entry.path, str(error), command))
        return root / entry.path
    if not path.is_file():
        problems.add(_damaged(what, path, "it is missing", command))
    elif path.stat().st_size != entry.size:
        why = f"it has {path.stat().st_size} bytes, the manifest says {entry.size}"
        problems.add(_damaged(what, path, why, command))
    return path


def _damaged(what: str, path: Path, why: str, command: str) -> Problem:
    return StaleError.problem(
        f"a file of the {what} is damaged: {why}", code=f"{what}.damaged", hint=f"Run: {command}", file=path
    )
