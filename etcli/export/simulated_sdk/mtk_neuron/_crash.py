"""A compiler that dies, for those who want to see what comes of it."""

from __future__ import annotations

import os
import signal

from ._options import CompileError

VARIABLE = "ETCLI_NEURON_SIM_CRASH"
"""`SIGNAL[:TEXT]`: the process is ended by the signal when it is to compile a network whose listing has TEXT, or any without."""


def crash_when_told(listing: str) -> None:
    """End this process by the signal that the variable names, where it means the network of `listing`.

    Raises:
        CompileError: there is no such signal.
    """
    told = os.environ.get(VARIABLE)
    if not told:
        return
    name, _, text = told.partition(":")
    try:
        number = signal.Signals[name]
    except KeyError:
        raise CompileError(
            f"simulated compiler: {VARIABLE} names a signal such as SIGSEGV first, not {name!r}"
        ) from None
    if text in listing:
        os.kill(os.getpid(), number)
