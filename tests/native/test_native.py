"""The tests of the native parts, run by ctest under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from etcli.llama.prefill import split_prompt


def test_ctest_passes(native_build: Path) -> None:
    ctest = Path(sys.executable).parent / "ctest"
    done = subprocess.run(
        [ctest, "--test-dir", native_build, "--output-on-failure", "--no-tests=error"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"100% tests passed.* out of (\d+)", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 10
    assert "Not Run" not in done.stdout


def test_an_abort_of_the_runtime_is_an_event(native_build: Path) -> None:
    done = subprocess.run(
        [native_build / "runner" / "tests" / "abort_event"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 5
    (line,) = done.stdout.splitlines()
    error = json.loads(line)
    assert (error["event"], error["code"]) == ("error", "runner.execute")
    assert "broken on purpose" in error["message"]


def test_prompts_are_split_as_in_python(native_build: Path) -> None:
    program = native_build / "runner" / "tests" / "print_split"
    for shapes in ((4,), (32,), (8, 4), (128, 32), (7, 5, 3), (64, 32, 8), (9, 2), (32, 1), (128, 32, 1)):
        done = subprocess.run(
            [program, "300", *map(str, shapes)], capture_output=True, text=True, timeout=60, check=True
        )
        ours = [line.split() for line in done.stdout.splitlines()]
        assert ours == [
            [f"{call.tokens}:{call.padding}" for call in split_prompt(length, shapes)] for length in range(1, 301)
        ]
