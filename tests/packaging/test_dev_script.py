"""./dev, with a virtual environment that is set up already."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLED = ("g++", "aarch64-linux-gnu-g++", "qemu-aarch64-static", "bwrap")


@pytest.mark.skipif(
    not Path("/usr/include/doctest/doctest.h").exists() or not all(map(shutil.which, CALLED)),
    reason="./dev would install packages",
)
def test_run_takes_paths_from_the_folder_of_the_user(tmp_path: Path) -> None:
    binaries = tmp_path / "environment" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "etcli"):
        program = binaries / name
        program.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
        program.chmod(0o755)
    inputs = [ROOT / "pyproject.toml", ROOT / "constraints" / "linux-x86_64.txt", ROOT / "dev"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    (tmp_path / "environment" / ".etcli-setup").write_text(f"{digest}  -\n")
    project = tmp_path / "my project"
    project.mkdir()
    done = subprocess.run(
        [ROOT / "dev", "run", "validate", "a recipe.yaml"],
        cwd=project,
        env={**os.environ, "ETCLI_VENV": str(tmp_path / "environment")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [str(project), "validate", "a recipe.yaml"]
