"""Output into a pipe that nobody reads any more (`| head -1`): no traceback, and never the exit status of a fault or of success."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(*words: str, closed: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: writer}
    try:
        return subprocess.run(
            [sys.executable, "-m", "etcli", *words],
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
            **streams,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", [("recipe", "show"), ("recipe", "list")])
def test_a_verb_that_cannot_tell_its_result_is_interrupted(words: tuple[str, ...]) -> None:
    done = run(*words, closed="stdout")
    assert (done.returncode, done.stderr) == (130, "")


def test_a_message_that_nobody_reads(tmp_path: object) -> None:
    done = run("validate", f"{tmp_path}/none.yaml", closed="stderr")
    assert done.returncode not in (0, 1)
    assert done.stdout == ""
