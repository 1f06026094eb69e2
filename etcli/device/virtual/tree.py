"""The device's file tree seen from outside: paths resolved as the device itself would, so that none leads out of it.

The root is a descriptor of the device's own root folder. A path is walked one component at a time by descriptor, links are read and
followed by hand: an absolute one starts at the device's root again, `..` stops there. Nothing that a program on the device renames
meanwhile can therefore lead to a file of this machine, and read-only mounts and size limits hold as they do inside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator

_MAX_LINKS = 40
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Tree:
    """File operations below a root. Paths are the device's; every method raises `OSError` with the errno the device would give."""

    def __init__(self, root: int) -> None:
        self._root = root

    def lstat(self, path: str) -> os.stat_result:
        """The file itself, links not followed."""
        with self._located(path, follow=False) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def stat(self, path: str) -> os.stat_result:
        """The file, links followed."""
        with self._located(path, follow=True) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def entries(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """Names in a folder with what `lstat` gives for each; a file that vanishes meanwhile is left out."""
        with self._located(path, follow=True) as (parent, name):
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            for entry in (".", "..", *sorted(os.listdir(folder))):  # noqa: PTH208 - of a descriptor
                with contextlib.suppress(FileNotFoundError):
                    yield entry, os.stat(entry if entry != ".." else ".", dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)

    def open_read(self, path: str) -> int:
        """A descriptor of a regular file for reading."""
        with self._located(path, follow=True) as (folder, name):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            os.close(file)
            raise _error(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, path)
        return file

    def create(self, path: str, mode: int) -> int:
        """A descriptor of a new regular file for writing, in place of a file or link of that name; missing folders are made."""
        with self._new(path) as (folder, name):
            file = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder
            )
        os.fchmod(file, mode)
        return file

    def link(self, target: str, path: str) -> None:
        """A symbolic link, in place of a file or link of that name; missing folders are made."""
        with self._new(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove a file or link."""
        with self._located(path, follow=False) as (folder, name):
            os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _new(self, path: str) -> Iterator[tuple[int, str]]:
        with self._located(path, follow=False, make=True) as (folder, name):
            if name == ".":
                raise _error(errno.EISDIR, path)
            # The daemon may be root, whom no mode stops; a folder nobody may write to refuses it all the same, as it would the device.
            if not os.stat(".", dir_fd=folder).st_mode & 0o222:
                raise _error(errno.EACCES, path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            yield folder, name

    @contextlib.contextmanager
    def _located(self, path: str, *, follow: bool, make: bool = False) -> Iterator[tuple[int, str]]:
        """Descriptor of the folder that holds `path`, and the name in it (`.` for a path that ends in a folder walked into)."""
        if not path or "\0" in path:
            raise _error(errno.ENOENT, path)
        ahead = deque(part for part in path.split("/") if part not in ("", "."))
        walked = [os.dup(self._root)]
        links = 0
        try:
            while ahead:
                part = ahead.popleft()
                if part == "..":
                    if len(walked) > 1:
                        os.close(walked.pop())
                    continue
                try:
                    mode = os.stat(part, dir_fd=walked[-1], follow_symlinks=False).st_mode
                except FileNotFoundError:
                    if not ahead:
                        yield walked[-1], part
                        return
                    if not make:
                        raise
                    with contextlib.suppress(FileExistsError):  # another stream may make it at the same time
                        os.mkdir(part, 0o755, dir_fd=walked[-1])
                    mode = os.stat(part, dir_fd=walked[-1], follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode) and (ahead or follow):
                    links += 1
                    if links > _MAX_LINKS:
                        raise _error(errno.ELOOP, path)
                    target = os.readlink(part, dir_fd=walked[-1])
                    if target.startswith("/"):
                        while len(walked) > 1:
                            os.close(walked.pop())
                    ahead.extendleft(piece for piece in reversed(target.split("/")) if piece not in ("", "."))
                elif not ahead:
                    yield walked[-1], part
                    return
                else:
                    walked.append(os.open(part, _FOLDER, dir_fd=walked[-1]))
            yield walked[-1], "."
        finally:
            for folder in walked:
                os.close(folder)
