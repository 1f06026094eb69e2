"""A compiler launcher that compiles nothing twice: tests build the same sources with the same flags again and again, each in folders of its own.

CMake starts it before the compiler (`CMAKE_CXX_COMPILER_LAUNCHER`). An object is kept under a hash of the compiler, the flags without the names of
folders, and the source as the preprocessor gives it, `__FILE__` and all: what the compiler would have made of it, to the byte. Whatever is out of
the ordinary goes to the compiler itself: debugging information, which names folders; errors and warnings; programs that stand in for a compiler.
Only the standard library, for it starts before every compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SOURCES = (".c", ".cc", ".cpp")
_FOLDERS = ("-I", "-isystem", "-iquote", "-idirafter", "--sysroot=", "-ffile-prefix-map=", "-fmacro-prefix-map=")
_DEPENDENCIES = ("-MD", "-MMD", "-MP", "-MF", "-MT", "-MQ")
_WITH_VALUE = (*_FOLDERS[:4], "-D", "-U", "-include", "-target", "-MF", "-MT", "-MQ", "-o")
_UNCOMMON = (
    "@",
    "-g",
    "-v",
    "-M",
    "-E",
    "-S",
    "-x",
    "-###",
    "-save-temps",
    "--coverage",
    "-fprofile",
    "-ftest",
    "-fdump",
)
_DAYS = 7


@dataclass(frozen=True)
class Request:
    """A command of the ordinary kind: one source to one object. `flags` are the others, `dependencies` how the file of them is asked for."""

    compiler: str
    flags: tuple[str, ...]
    dependencies: tuple[str, ...]
    source: str
    object: str


def request_of(command: Sequence[str]) -> Request | None:
    """What `command` asks for, or None for what is not of that kind."""
    flags: list[str] = []
    dependencies: list[str] = []
    sources: list[str] = []
    objects: list[str] = []
    compiles = False
    words = iter(command[1:])
    for word in words:
        value = [next(words, "")] if word in _WITH_VALUE else []
        if word == "-c":
            compiles = True
        elif word == "-o":
            objects += value
        elif word in _DEPENDENCIES:
            dependencies += [word, *value]
        elif word == "-" or word.startswith(_UNCOMMON):
            return None
        elif word.startswith("-"):
            flags += [word, *value]
        else:
            sources.append(word)
    if not compiles or len(sources) != 1 or len(objects) != 1 or not sources[0].endswith(_SOURCES):
        return None
    return Request(command[0], tuple(flags), tuple(dependencies), sources[0], objects[0])


def plain(flags: Sequence[str]) -> list[str]:
    """`flags` without the names of folders, which show in the preprocessed source where they matter."""
    told = []
    words = iter(flags)
    for word in words:
        folder = next((option for option in _FOLDERS if word.startswith(option)), None)
        if folder is not None:
            if word == folder:
                next(words, None)
            word = folder
        told.append(word)
    return told


def key_of(request: Request) -> str | None:
    """The hash that stands for the object, the file of dependencies being written on the way; None where the preprocessor fails or says a word."""
    real = Path(request.compiler).resolve()
    if real.parts[:2] != ("/", "usr"):
        return None
    asked = request.dependencies
    if "-MF" in asked and not {"-MT", "-MQ"} & set(asked):
        asked = (*asked, "-MT", request.object)
    command = [request.compiler, *request.flags, *asked, "-E", "-P", request.source]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or done.stderr:
        return None
    stat = real.stat()
    told = [request.compiler.rpartition("/")[2], str(real), stat.st_size, stat.st_mtime_ns, *plain(request.flags)]
    told.append(request.source.rpartition("/")[2])
    return hashlib.sha256(repr(told).encode() + b"\0" + done.stdout).hexdigest()


def compiled(request: Request, command: Sequence[str], store: Path) -> int:
    """Put the object there, from `store` or by the compiler, and give the exit status."""
    key = key_of(request)
    if key is None:
        return subprocess.run(command, check=False).returncode
    kept = store / key[:2] / key
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another that compiles just this is waited for
        if kept.exists():
            shutil.copyfile(kept, request.object)
            os.utime(kept)
            return 0
        done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
        sys.stderr.buffer.write(done.stderr)
        if done.returncode == 0 and not done.stderr:
            part = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(request.object, part)
            part.replace(kept)
        return done.returncode


def prune(store: Path) -> None:
    """Remove what no test has used for some days."""
    oldest = time.time() - _DAYS * 86400
    for path in store.glob("??/*"):
        try:
            if path.stat().st_mtime < oldest:
                path.unlink()
        except FileNotFoundError:  # by another test run
            continue


def launcher(store: Path) -> str:
    """The value of CMake's variables `CMAKE_<LANGUAGE>_COMPILER_LAUNCHER`."""
    return ";".join([sys.executable, "-I", "-S", __file__, str(store)])


def main() -> None:
    store, command = Path(sys.argv[1]), sys.argv[2:]
    request = request_of(command)
    if request is None or "CMakeScratch" in str(Path.cwd()):  # what CMake tries out says nothing new
        os.execvp(command[0], command)  # noqa: S606 - a shell is what it must not pass through
    sys.exit(compiled(request, command, store))


if __name__ == "__main__":
    main()
