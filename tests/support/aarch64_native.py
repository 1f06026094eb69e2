"""Programs of `native/` for the other processor, and how they are run here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from etcli.common.assets import asset_dir
from etcli.tables.targets import load_targets
from etcli.toolchain import cmake, compilers, ninja, qemu
from etcli.toolchain.executorch import wheel_for

TARGET = load_targets()["linux-aarch64"]


def build_for_aarch64(folder: Path, targets: Iterable[str]) -> None:
    """Build CMake targets of `native/` in `folder` as products are built: optimised, without sanitizers. A failure is the test's."""
    configure: list[str | Path] = [
        *("-S", asset_dir("native"), "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja.find()}"),
        *(
            "-DCMAKE_BUILD_TYPE=Release",
            "-DETCLI_SANITIZE=OFF",
            "-DCMAKE_SYSTEM_NAME=Linux",
            "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        ),
        f"-DCMAKE_CXX_COMPILER={compilers.verify(TARGET).path}",
        f"-DCMAKE_C_COMPILER={TARGET.compiler.c[0]}",
        f"-Dexecutorch_DIR={wheel_for(TARGET).cmake_dir}",
    ]
    compile_: list[str | Path] = ["--build", folder, "--target", *targets]
    for arguments in (configure, compile_):
        done = subprocess.run([cmake.find(), *arguments], capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr


def emulated(program: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> list[str | Path]:
    """The command that runs a program for the other processor, with these variables of the environment."""
    variables = [word for name, value in (environment or {}).items() for word in ("-E", f"{name}={value}")]
    return [qemu.find(TARGET), "-L", str(TARGET.sysroot), *variables, program, *arguments]
