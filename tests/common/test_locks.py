"""A lock is held by one process at a time, and freed by the system when its holder dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from etcli.common.locks import exclusive

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
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waited = []

    def waiting() -> None:
        waited.append(holder.poll())
        holder.kill()

    with exclusive(path, on_wait=waiting):
        assert waited == [None]
        assert holder.wait(10) == -9
    holder.stdout.close()


def test_a_free_lock_is_taken_at_once(tmp_path: Path) -> None:
    def waiting() -> None:
        raise AssertionError("nobody holds it")

    for _ in range(2):
        with exclusive(tmp_path / "one.lock", on_wait=waiting):
            pass
    assert (tmp_path / "one.lock").exists()
