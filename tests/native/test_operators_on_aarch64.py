"""The native tests of operator libraries on the other processor: NEON, under emulation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from etcli.common.assets import asset_dir
from etcli.tables.targets import load_targets
from etcli.toolchain import cmake, compilers, ninja, qemu
from etcli.toolchain.executorch import wheel_for

TARGET = load_targets()["linux-aarch64"]


# Of each program the fewest test cases that there may be.
PROGRAMS = {"attention/tests/attention_tests": 19, "aqlm/tests/aqlm_tests": 22, "aqlm/tests/aqlm_openmp_tests": 22}


@pytest.fixture(scope="module")
def tests_for_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder with PROGRAMS, built as products are: optimised, without sanitizers."""
    folder = tmp_path_factory.mktemp("aarch64")
    for arguments in (
        (
            *("-S", asset_dir("native"), "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja.find()}"),
            *(
                "-DCMAKE_BUILD_TYPE=Release",
                "-DETCLI_SANITIZE=OFF",
                f"-DCMAKE_CXX_COMPILER={compilers.verify(TARGET).path}",
            ),
            *("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"),
            f"-Dexecutorch_DIR={wheel_for(TARGET).cmake_dir}",
        ),
        ("--build", folder, "--target", *(Path(program).name for program in PROGRAMS)),
    ):
        done = subprocess.run([cmake.find(), *arguments], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_version_passes(program: str, tests_for_aarch64: Path) -> None:
    argv: list[str | Path] = [qemu.find(TARGET), "-L", str(TARGET.sysroot), tests_for_aarch64 / program, "--no-version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"test cases: *(\d+) \| *(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert passed[1] == passed[2]
    assert int(passed[1]) >= PROGRAMS[program]
