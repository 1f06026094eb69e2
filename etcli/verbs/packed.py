"""A packed bundle read where it is: its manifest, its members, and their hashes, without unpacking anything to the disk."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import DeployError, Problem, Problems, UsageError
from etcli.common.zips import is_unreadable
from etcli.manifests.base import FileEntry
from etcli.manifests.bundle import BundleManifest
from etcli.output.console import Console
from etcli.recipe.outdated import MANIFEST
from etcli.verbs.archive import AGAIN, BLOCK, Archived, refuse_bad_names

_LARGEST_MANIFEST = 64 << 20


@dataclass(frozen=True)
class PackedMember:
    """A file in the archive: its size, what it takes in the archive, and whether the manifest names it (the export report only travels along)."""

    path: str
    size: int
    stored: int
    named: bool


@dataclass(frozen=True)
class PackedFacts:
    """The archive's own size in bytes, and its members by name."""

    size: int
    members: tuple[PackedMember, ...]


def read_packed(archive: Path) -> tuple[BundleManifest, PackedFacts]:
    """The manifest and the members of `archive`. Only the manifest is read; sizes are held against it, hashes are for `verify_packed`.

    Raises:
        EtcliError: exit 2 for a file that is no archive of ours, exit 8 with every member that is refused, missing or of the wrong size.
    """
    with _opened(archive) as source:
        manifest, members = _checked(archive, source)
        named = {entry.path for entry in manifest.files()} | {MANIFEST}
        return manifest, PackedFacts(
            archive.stat().st_size,
            tuple(
                PackedMember(member.filename, member.file_size, member.compress_size, member.filename in named)
                for _, member in sorted(members.items())
            ),
        )


def verify_packed(archive: Path, console: Console) -> Archived:
    """Check every member against the manifest, hashes included.

    Raises:
        EtcliError: as `read_packed`, and exit 8 with every member whose hash differs.
    """
    problems = Problems()
    with _opened(archive) as source:
        manifest, members = _checked(archive, source)
        files = manifest.files()
        with console.progress("verify", sum(entry.size for entry in files), bytes_=True) as advance:
            for entry in files:
                digest, size = hashlib.sha256(), 0
                try:
                    with source.open(members[entry.path]) as data:
                        # what is packed may be larger than it says
                        while size <= entry.size and (block := data.read(BLOCK)):
                            digest.update(block)
                            size += len(block)
                            advance(len(block))
                except Exception as error:
                    _expect(error)
                    problems.add(_damaged(archive, entry.path, f"cannot be read: {error}"))
                    continue
                if digest.hexdigest() != entry.sha256:
                    problems.add(_damaged(archive, entry.path, "has another hash than the manifest says"))
    problems.raise_if_any()
    return Archived(
        folder=archive,
        files=len(files) + 1,
        bytes=sum(entry.size for entry in files),
        archive=archive,
        size=archive.stat().st_size,
    )


def _expect(error: Exception) -> None:
    """Raise what is not the archive's fault."""
    if not is_unreadable(error) and not isinstance(error, OSError):
        raise error


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        source = zipfile.ZipFile(archive)
    except Exception as error:
        _expect(error)
        raise UsageError(
            f"{archive} is not a bundle archive: {error}",
            code="bundle.bad_archive",
            hint="Make one with: etcli bundle pack",
        ) from None
    with source:
        yield source


def _checked(archive: Path, source: zipfile.ZipFile) -> tuple[BundleManifest, dict[str, zipfile.ZipInfo]]:
    refuse_bad_names(archive, source.infolist())
    members = {member.filename: member for member in source.infolist()}
    manifest = _manifest(archive, source, members[MANIFEST])
    problems = Problems()
    for entry in manifest.files():
        problems.add(_problem(archive, entry, members.get(entry.path)))
    problems.raise_if_any()
    return manifest, members


def _manifest(archive: Path, source: zipfile.ZipFile, member: zipfile.ZipInfo) -> BundleManifest:
    try:
        if member.file_size > _LARGEST_MANIFEST:
            raise ValueError(f"it has {member.file_size} bytes")
        with source.open(member) as file:
            text = file.read(_LARGEST_MANIFEST + 1).decode()
    except Exception as error:
        _expect(error)
        raise DeployError(
            f"member {MANIFEST} of {archive} cannot be read: {error}", code="bundle.damaged", hint=AGAIN, file=archive
        ) from None
    return BundleManifest.parse(text, file=archive / MANIFEST)


def _problem(archive: Path, entry: FileEntry, member: zipfile.ZipInfo | None) -> Problem | None:
    if member is None:
        return _damaged(archive, entry.path, "is missing")
    if member.file_size != entry.size:
        return _damaged(archive, entry.path, f"has {member.file_size:,} bytes, the manifest says {entry.size:,}")
    return None


def _damaged(archive: Path, path: str, what: str) -> Problem:
    return DeployError.problem(f"member {path} {what}", code="bundle.damaged", hint=AGAIN, file=archive)
