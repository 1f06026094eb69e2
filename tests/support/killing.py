"""etcli killed at a chosen moment: before its n-th change to files, start of a program or connection, counted from its beginning.

Such moments are the same ones however slow a machine is, and they are where a half-written state would show.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_RUN = """
import atexit, os, signal, sys
AT, COUNT_FILE = int(sys.argv[1]), sys.argv[2]
EVENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.utime", "os.chmod",
          "subprocess.Popen", "socket.connect"}
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
count = 0

def hook(event, arguments):
    global count
    if event == "open":
        flags = arguments[2]
        if not isinstance(flags, int) or not flags & CHANGES or str(arguments[0]).startswith("/dev/"):
            return
    elif event not in EVENTS:
        return
    count += 1
    if count == AT:
        os.kill(os.getpid(), signal.SIGKILL)

def tell():
    told = count
    with open(COUNT_FILE, "w") as file:
        file.write(str(told))

sys.addaudithook(hook)
atexit.register(tell)
del sys.argv[1:3]
from etcli.cli.main import main
main()
"""


@dataclass
class Command:
    """A command of etcli that can be killed. `words` are what follows `etcli`."""

    words: Sequence[str | Path]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, kill_at: int = 0) -> tuple[int, int | None]:
        """Its exit status (-9: it was killed) and, where it came to its end, the moments that it had; 0 kills at none."""
        counted = self.folder / "moments"
        counted.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(kill_at), str(counted), *map(str, self.words)],
            cwd=self.folder,
            # bytecode is written by the first run alone, which is no moment of the command's own
            env={**os.environ, **self.environment, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode, int(counted.read_text()) if counted.exists() else None


def kill_and_repeat(
    command: Command,
    state: Callable[[], object],
    *,
    kills: int,
    seed: int,
    begin: Callable[[], None] = lambda: None,
    always: Callable[[object], None] = lambda _: None,
) -> None:
    """Run `command` and note the `state` that it leaves. Then begin again, kill it at some moments, one after the other, and repeat it: the same state.

    Args:
        begin: makes everything as it was before the command.
        always: called with the right state after every kill; asserts what has to hold at any moment.
    """
    begin()
    status, moments = command.run()
    assert status == 0
    assert moments is not None
    right = state()
    begin()
    # Each of them goes on from what the one before has left, so later ones have fewer moments: some are not reached.
    chosen = random.Random(seed).sample(range(1, moments + 1), min(kills, moments))  # noqa: S311 - for moments to try
    killed = 0
    for moment in chosen:
        status, _ = command.run(moment)
        killed += status != 0
        always(right)
    assert killed > 0, f"none of the moments {chosen} of {moments} was reached"
    assert command.run()[0] == 0
    assert state() == right, f"killed at the moments {chosen} of {moments}"
