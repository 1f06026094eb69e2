"""Which adb program is used: adbutils' own order, without importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import adbutils
import pytest

from etcli.common.errors import ToolError
from etcli.device import program
from etcli.device.program import adb_program


def fake_adb(folder: Path, status: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "adb"
    path.write_text(f"#!/bin/sh\necho Android Debug Bridge version 1.0.41\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADBUTILS_ADB_PATH", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def test_the_named_one_goes_before_the_one_on_path(tmp_path, monkeypatch):
    on_path = fake_adb(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert adb_program() == adbutils.adb_path() == str(on_path)
    named = fake_adb(tmp_path / "named")
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(named))
    assert adb_program() == adbutils.adb_path() == str(named)


def test_one_on_path_that_does_not_start_is_passed_over(tmp_path, monkeypatch):
    broken = fake_adb(tmp_path / "bin", status=1)
    monkeypatch.setenv("PATH", f"{broken.parent}:/usr/bin:/bin")
    assert adb_program() == adbutils.adb_path()
    assert Path(adb_program()).parent.name == "binaries"


def test_none_at_all(monkeypatch):
    monkeypatch.setattr(program, "_candidates", lambda: iter(()))
    with pytest.raises(ToolError) as caught:
        adb_program()
    assert caught.value.problems[0].code == "adb.missing"


def test_adbutils_is_not_imported_for_it():
    script = "import sys; from etcli.device.program import adb_program; adb_program(); print('adbutils' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
