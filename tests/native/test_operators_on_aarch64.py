"""The native tests of operator libraries on the other processor: NEON, under emulation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from aarch64_native import build_for_aarch64, emulated

# Of each program the fewest test cases that there may be.
PROGRAMS = {"attention/tests/attention_tests": 19, "aqlm/tests/aqlm_tests": 22, "aqlm/tests/aqlm_openmp_tests": 22}


@pytest.fixture(scope="module")
def tests_for_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder with PROGRAMS."""
    folder = tmp_path_factory.mktemp("aarch64")
    build_for_aarch64(folder, [Path(program).name for program in PROGRAMS])
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_version_passes(program: str, tests_for_aarch64: Path) -> None:
    argv = emulated(tests_for_aarch64 / program, "--no-version")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"test cases: *(\d+) \| *(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert passed[1] == passed[2]
    assert int(passed[1]) >= PROGRAMS[program]
