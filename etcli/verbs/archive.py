"""A bundle as one archive to carry to another machine, and a bundle's hashes checked.

The archive is a plain zip: `.pte` chunks barely compress, so members are stored, except the small texts.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import DeployError, Problems, UsageError
from etcli.common.files import atomic_writer, check_relative, is_no_space, output_path, remove_tree
from etcli.common.hashing import file_sha256
from etcli.common.zips import is_unreadable
from etcli.manifests.base import FileEntry
from etcli.manifests.bundle import BundleManifest
from etcli.output.console import Console
from etcli.recipe.outdated import MANIFEST

_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed member time: equal bundles give equal archives
BLOCK = 1 << 20


@dataclass(frozen=True)
class Archived:
    """What was packed, unpacked or verified. `size` is the archive's, in bytes, 0 where there is none.

    `files` counts the manifest and what it names, `bytes` what it names; files that only travel along (the export report) are in neither.
    """

    folder: Path
    files: int
    bytes: int
    archive: Path | None = None
    size: int = 0


def verify(folder: Path, console: Console) -> Archived:
    """Check every file of a bundle against its manifest, hashes included.

    Raises:
        EtcliError: exit 2 where there is no bundle, exit 8 with every file that is missing or differs.
    """
    manifest = _manifest(folder)
    problems = Problems()
    files = manifest.files()
    with console.progress("verify", sum(entry.size for entry in files), bytes_=True) as advance:
        for entry in files:
            problem = _check(folder, entry, advance)
            if problem is not None:
                problems.add(DeployError.problem(problem, code="bundle.damaged", hint=AGAIN, file=folder / entry.path))
    problems.raise_if_any()
    return Archived(folder=folder, files=len(files) + 1, bytes=sum(entry.size for entry in files))


AGAIN = "Export it again with --force, or copy it again from where it was whole."


def is_packed(path: Path) -> bool:
    """Whether the file is a zip with a bundle's manifest and runner configuration at its top."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {MANIFEST, "runner.cfg"} <= set(archive.namelist())
    except Exception as error:
        if is_unreadable(error) or isinstance(error, OSError):
            return False
        raise


_OTHER_ARCHIVES = frozenset((".7z", ".bz2", ".gz", ".lz4", ".rar", ".tar", ".tbz2", ".tgz", ".txz", ".xz", ".zst"))


def pack(folder: Path, output: Path | None, name: str, console: Console, *, force: bool = False) -> Archived:
    """Pack a verified bundle (with its export report and reference files, where it has them) into `output`, by default `NAME.bundle.zip`.

    Raises:
        EtcliError: exit 2 where `output` is there already (unless `force`) or is named as another kind of archive; and as `verify`.
        OSError: the archive cannot be written.
    """
    archive = output or Path(f"{name}.bundle.zip")
    _check_output(archive, force=force)
    verified = verify(folder, console)
    members = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    with (
        console.progress("pack", sum(path.stat().st_size for path in members), bytes_=True) as advance,
        atomic_writer(output_path(archive)) as file,
        zipfile.ZipFile(file, "w") as target,
    ):
        for path in members:
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _TIME)
            info.external_attr = 0o644 << 16
            info.compress_type = (
                zipfile.ZIP_DEFLATED if path.suffix in (".json", ".cfg", ".jinja") else zipfile.ZIP_STORED
            )
            with path.open("rb") as source, target.open(info, "w", force_zip64=True) as member:
                while block := source.read(BLOCK):
                    member.write(block)
                    advance(len(block))
    return Archived(
        folder=folder,
        files=verified.files,
        bytes=verified.bytes,
        archive=archive,
        size=archive.stat().st_size,
    )


def unpack(archive: Path, folder: Path, console: Console) -> Archived:
    """Unpack an archive into the new folder `folder` and verify it; on any failure `folder` is not there.

    Raises:
        EtcliError: exit 2 for a folder in use or a file that is no archive of ours, exit 8 for members that are refused or damaged.
        OSError: `folder` cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", code="bundle.exists", hint="Name a folder that is new or empty.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        _extract(archive, temporary, console)
        result = verify(temporary, console)
        if folder.exists():
            folder.rmdir()
        temporary.chmod(0o755)
        temporary.replace(folder)
    except BaseException:
        remove_tree(temporary)
        raise
    return Archived(folder=folder, files=result.files, bytes=result.bytes, archive=archive, size=archive.stat().st_size)


def _check_output(archive: Path, *, force: bool) -> None:
    if archive.suffix.lower() in _OTHER_ARCHIVES:
        raise UsageError(
            f"the archive is a zip, and {archive.name} is named as another kind",
            code="bundle.not_zip",
            hint=f"Name it {archive.name.split('.')[0] or 'bundle'}.zip",
        )
    if not force and (archive.exists() or archive.is_symlink()):
        raise UsageError(
            f"{archive} exists already",
            code="bundle.exists",
            hint="Name another file with --output, or add --force to replace it.",
        )


def _manifest(folder: Path) -> BundleManifest:
    try:
        return BundleManifest.read(folder / MANIFEST)
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is not a bundle: it has no {MANIFEST}",
            code="bundle.missing",
            hint="Name the folder that `etcli export` made, .etcli/NAME/bundle, or a packed bundle.",
        ) from None


def _check(folder: Path, entry: FileEntry, advance: Callable[[int], None]) -> str | None:
    path = folder / entry.path
    if path.is_symlink():
        return "is a link; a bundle holds files only"
    if not path.is_file():
        return "is not a regular file" if path.exists() else "missing from the bundle"
    size = path.stat().st_size
    if size != entry.size:
        return f"has {size} bytes, the manifest says {entry.size}"
    if file_sha256(path, advance) != entry.sha256:
        return "its hash differs from the manifest's"
    return None


def _extract(archive: Path, folder: Path, console: Console) -> None:
    try:
        if archive.exists() and not archive.is_file():
            raise zipfile.BadZipFile("it is not a regular file")
        source = zipfile.ZipFile(archive)
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {archive}", code="bundle.no_archive", hint="Name an archive made by: etcli bundle pack"
        ) from None
    except Exception as error:
        if not is_unreadable(error) and not isinstance(error, OSError):
            raise
        raise UsageError(
            f"{archive} is not a bundle archive: {error}",
            code="bundle.bad_archive",
            hint="Make one with: etcli bundle pack",
        ) from None
    with source:
        members = source.infolist()
        total = sum(member.file_size for member in members)
        free = shutil.disk_usage(folder).free
        if total > free:
            raise UsageError(
                f"{archive} unpacks to {total / 1e6:.0f} MB, only {free / 1e6:.0f} MB are free",
                code="bundle.no_space",
                hint=f"Free some space on the disk of {folder.parent}.",
            )
        refuse_bad_names(archive, members)
        with console.progress("unpack", total, bytes_=True) as advance:
            for member in members:
                path = folder / member.filename
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with source.open(member) as data, path.open("xb") as out:
                        while block := data.read(BLOCK):
                            out.write(block)
                            advance(len(block))
                except Exception as error:
                    if is_no_space(error) or not (is_unreadable(error) or isinstance(error, OSError)):
                        raise
                    raise DeployError(
                        f"member {member.filename} of {archive} cannot be read: {error}",
                        code="bundle.damaged",
                        hint=AGAIN,
                    ) from None


def refuse_bad_names(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse members that would be written outside the folder, are no regular files or are there twice, and an archive without a manifest.

    Raises:
        EtcliError: naming all of them.
    """
    problems = Problems()
    seen: set[str] = set()
    for member in members:
        mode = member.external_attr >> 16
        reason = None
        try:
            check_relative(member.filename)
        except ValueError as error:
            reason = str(error)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            reason = f"{member.filename!r} is not a regular file"
        if member.filename in seen:
            reason = f"{member.filename!r} is there twice"
        seen.add(member.filename)
        if reason:
            problems.add(
                DeployError.problem(
                    f"member refused: {reason}",
                    code="bundle.unsafe_member",
                    file=archive,
                    hint="Get the archive again from a source you trust.",
                )
            )
    problems.raise_if_any()
    if MANIFEST not in seen:
        raise UsageError(
            f"{archive} holds no {MANIFEST}", code="bundle.bad_archive", hint="Make one with: etcli bundle pack"
        )
