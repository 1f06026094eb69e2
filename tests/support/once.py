"""What is expensive and the same for every test is made once for all the processes of a parallel test run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, which `make` filled, in this process or in another one of the run. Nobody may change it.

    Others that want it wait for the one that makes it. `make` is given the folder itself, so that what it makes may name its own place; after a
    failure the next one begins anew in what is there.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "once" / name
    folder.mkdir(parents=True, exist_ok=True)
    done = folder.with_name(f"{name}.done")
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder
