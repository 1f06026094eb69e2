"""Files that are either whole or not there: atomic writes, contained paths, stamps of what a source looked like."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO


@contextlib.contextmanager
def atomic_writer(path: Path, *, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for binary writing and rename it over `path` when the block ends without error.

    After an exception (Ctrl-C included) the temporary file is gone and `path` is what it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o644) -> None:
    """Replace `path` by `content` (text as UTF-8) in one step."""
    with atomic_writer(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def output_path(path: Path) -> Path:
    """Where a file is written that the user named: `path` itself, or what it links to.

    Raises:
        OSError: something is there that is not a regular file, as /dev/null: an atomic write would take its place.
    """
    real = Path(os.path.realpath(path))
    if real.exists() and not real.is_file() and not real.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return real


def write_if_changed(path: Path, content: bytes | str, *, mode: int = 0o644) -> bool:
    """Like `write_atomically`, but leaves an equal file and its time alone. Returns whether it wrote."""
    data = content.encode() if isinstance(content, str) else content
    with contextlib.suppress(OSError):
        if path.read_bytes() == data and (path.stat().st_mode & 0o777) == mode:
            return False
    write_atomically(path, data, mode=mode)
    return True


def remove_unfinished(folder: Path, names: Iterable[str]) -> None:
    """Remove what `atomic_writer` left of these files of `folder` in a process that was killed. Nobody else may be writing them."""
    for name in names:
        for path in folder.glob(f".{glob.escape(name)}.*.tmp"):
            path.unlink(missing_ok=True)


def contained(root: Path, relative: str) -> Path:
    """`root / relative`, provided that it names something inside `root` without links leading out.

    Raises:
        ValueError: `relative` is empty, absolute, has `..` or a NUL, or resolves outside `root`.
    """
    check_relative(relative)
    path = root / relative
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{relative!r} leads outside {root}")
    return path


def check_relative(relative: str) -> PurePosixPath:
    """`relative` as a POSIX path that stays inside whatever folder it is put in.

    Raises:
        ValueError: it is empty, absolute, has `..`, `.` or empty parts, control characters or backslashes.
    """
    bad = (
        not relative
        or relative.startswith("/")
        or any(part in ("", ".", "..") for part in relative.split("/"))
        or any(ord(char) < 32 or char in "\\\x7f" for char in relative)
    )
    if bad:
        raise ValueError(f"{relative!r} is not a plain relative path")
    return PurePosixPath(relative)


def remove_tree(path: Path) -> None:
    """Remove a file or folder, if it is there. A symbolic link is removed, never followed."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    elif path.exists():
        shutil.rmtree(path)


def is_no_space(error: BaseException) -> bool:
    """Whether `error` says that a disk or a quota is full, in whatever class a library wraps it (safetensors has its own)."""
    full = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in full
    return any(f"os error {number})" in str(error) or os.strerror(number) in str(error) for number in full)


def stamp(path: Path) -> dict[str, list[int]]:
    """Size in bytes and modification time in ns of a file, or of every regular file below a folder, by relative POSIX path.

    Two equal stamps mean that nothing was written in between, short of forged times. A missing path gives an empty stamp.
    """
    if path.is_file():
        status = path.stat()
        return {path.name: [status.st_size, status.st_mtime_ns]}
    found = {}
    for entry in sorted(path.rglob("*")):
        if entry.is_file():
            status = entry.stat()
            found[entry.relative_to(path).as_posix()] = [status.st_size, status.st_mtime_ns]
    return found
