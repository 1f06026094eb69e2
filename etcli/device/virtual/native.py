"""The small native programs that a virtual device needs, compiled once into the cache.

`init` is the device's first process; `exec_foreign` makes its tools run programs of another instruction set by an emulator; `sha256sum` hashes
as fast as a phone's does.
Their sources are in `native/virtual_device/`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

from etcli.common import process
from etcli.common.assets import asset_dir
from etcli.common.errors import ToolError
from etcli.common.workspace import cache_dir
from etcli.tables.targets import load_targets
from etcli.toolchain import compilers

_FLAGS = ("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-Wl,--as-needed")
_LOADING = ("-ldl",)
_SHARED = ("-fPIC", "-shared")
_COMPILE_SECONDS = 120.0


def init_program() -> Path:
    """The compiled `init`.

    Raises:
        ToolError: there is no compiler for this machine, or it fails.
    """
    return _compiled("init.cc", "init", ())


def sha256sum_program() -> Path:
    """The compiled `sha256sum`.

    Raises:
        ToolError: there is no compiler for this machine, or it fails.
    """
    return _compiled("sha256sum.cc", "sha256sum", _LOADING)


def exec_library() -> Path:
    """The compiled `exec_foreign` library.

    Raises:
        ToolError: there is no compiler for this machine, or it fails.
    """
    return _compiled("exec_foreign.cc", "libetcli_exec.so", _SHARED)


def _compiled(source_name: str, result_name: str, extra: tuple[str, ...]) -> Path:
    source = asset_dir("native") / "virtual_device" / source_name
    key = hashlib.sha256(
        b"\0".join((source.read_bytes(), " ".join(_FLAGS + extra).encode(), os.uname().machine.encode()))
    )
    folder = cache_dir() / "virtual-device" / key.hexdigest()[:16]
    result = folder / result_name
    if result.is_file():
        return result
    compiler = compilers.verify(load_targets()["host"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if result.is_file():
            return result
        output = Path(scratch) / result_name
        done = process.run([compiler.path, *_FLAGS, "-o", output, source, *extra], timeout=_COMPILE_SECONDS)
        if not done.ok:
            raise ToolError(
                f"{compiler.path} cannot compile the virtual device's {source_name}: {_first_lines(done.stderr)}",
                code="virtual_device.compile",
                hint="The compiler must be able to build C++17 programs for this machine; on Debian and Ubuntu it is g++.",
                file=source,
            )
        output.replace(result)
    return result


def _first_lines(text: str) -> str:
    return "; ".join(text.strip().splitlines()[:3]) or "it printed nothing"
