"""A lock is held by one process at a time, and freed by the system when its holder dies."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etcli.common.locks import exclusive, holder, shared
from etcli.common.process import run

HOLD = """
import sys, time
from pathlib import Path
from etcli.common.locks import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_waits_until_the_first_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    waited = []

    def waiting() -> None:
        waited.append(process.poll())
        process.kill()

    with exclusive(path, on_wait=waiting):
        assert waited == [None]
        assert process.wait(10) == -9
    process.stdout.close()


def test_a_free_lock_is_taken_at_once(tmp_path: Path) -> None:
    def waiting() -> None:
        raise AssertionError("nobody holds it")

    for _ in range(2):
        with exclusive(tmp_path / "one.lock", on_wait=waiting):
            pass
    assert (tmp_path / "one.lock").exists()


def test_a_lock_that_its_holder_removed_is_taken_anew(tmp_path: Path) -> None:
    """As `etcli clean` does: whoever waited must not hold a lock that nobody else can see."""
    path = tmp_path / "folder" / "one.lock"
    remove = f"import shutil; shutil.rmtree({str(path.parent)!r})"
    code = HOLD.replace("time.sleep(60)", f"sys.stdin.readline(); {remove}")
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    stdin = process.stdin

    def waiting() -> None:
        stdin.write("\n")
        stdin.flush()

    with exclusive(path, on_wait=waiting):
        assert path.exists()
        assert process.wait(20) == 0
        with pytest.raises(BlockingIOError), path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    process.communicate()


def test_others_are_told_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    assert holder(path) == "another etcli"
    with exclusive(path, what="export of tiny"):
        assert holder(path).startswith(f"etcli export of tiny, process {os.getpid()} of ")
    with exclusive(path, what="build"):
        assert holder(path).startswith(f"etcli build, process {os.getpid()} of ")


def test_sharers_keep_out_only_whoever_wants_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    with (
        shared(path),
        shared(path, on_wait=lambda: pytest.fail("sharers do not wait")),
        path.open("ab") as file,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with exclusive(path, on_wait=lambda: pytest.fail("nobody shares it any more")):
        pass


OUTLIVED = """
import os, signal, sys
from pathlib import Path
from etcli.common.locks import exclusive
from etcli.common.process import stream
with exclusive(Path(sys.argv[1])):
    # a compiler whose driver has died already, as a build that is killed leaves it
    child = "echo begun; (read line < " + sys.argv[2] + ") > /dev/null & wait"
    stream(["sh", "-c", child], lambda line: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_what_a_killed_process_started_keeps_its_lock(tmp_path: Path) -> None:
    """A compiler goes on writing when the etcli that started it is killed: the next build must not write the same files meanwhile."""
    path, gate = tmp_path / "one.lock", tmp_path / "gate"
    os.mkfifo(gate)
    killed = subprocess.run([sys.executable, "-c", OUTLIVED, path, gate], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    waited = []

    def waiting() -> None:
        waited.append(True)
        gate.write_text("go on\n")

    with exclusive(path, on_wait=waiting):
        assert waited == [True]


def test_programs_that_are_no_part_of_the_work_get_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    with exclusive(path):
        done = run(["sh", "-c", "ls -l /proc/self/fd"])
    assert done.ok
    assert "one.lock" not in done.stdout
