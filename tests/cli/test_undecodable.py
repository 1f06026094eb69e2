"""Bytes that are no UTF-8 in arguments and folder names, and outputs whose encoding lacks a character: a message, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BAD = os.fsdecode(b"a\xffb")
RECIPE = "name: tiny\nmodel: {source: model}\n"


def etcli(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command, its output read as UTF-8, strictly."""
    return subprocess.run(
        [sys.executable, "-m", "etcli", *words],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **env},
        cwd=cwd,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--prompt", BAD),
        ("validate", BAD),
        ("build", "--workspace", BAD),
        ("export", "--set", f"run.prompt={BAD}"),
    ],
)
def test_arguments_are_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "etcli.yaml").write_text(RECIPE)
    done = etcli(*words, "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 2
    assert "not valid UTF-8" in document["errors"][0]["message"]
    assert r"a\udcffb" in document["errors"][0]["message"]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".etcli").exists()


@pytest.mark.parametrize("name", [BAD, "two\nlines", "tab\t"])
def test_a_workspace_that_no_manifest_could_name_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "etcli.yaml").write_text(RECIPE)
    done = etcli("build", "--json", cwd=folder)
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 2
    assert "a workspace cannot be in" in document["errors"][0]["message"]
    assert list(folder.iterdir()) == [folder / "etcli.yaml"]


def test_an_output_without_the_characters_gets_escapes(tmp_path: Path) -> None:
    (tmp_path / "etcli.yaml").write_text(RECIPE)
    plain = etcli("build", "--target", "é", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert plain.returncode == 2
    assert r"no target '\xe9'" in plain.stderr
    document = json.loads(etcli("build", "--target", "é", "--json", cwd=tmp_path, PYTHONIOENCODING="ascii").stdout)
    assert document["errors"][0]["message"] == "there is no target 'é'"
