"""The environment of processes that use torch."""

from __future__ import annotations

import os


def torch_environment(threads: int | None = None) -> dict[str, str]:
    """Variables to set on top of this process's own; with `threads`, the process's libraries are to use so many."""
    variables = {
        # a torch.py in the user's folder must not be imported for the real one
        "PYTHONSAFEPATH": "1",
        # hash seeds differ from process to process, and with them the order of sets: no byte of a bundle may depend on one
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        # threads that wait by spinning slow a busy machine down: measured, decoding took ten times as long beside other work
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }
    return variables if threads is None else {**variables, "OMP_NUM_THREADS": str(threads)}
