"""The same work on several devices at once."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from etcli.common.errors import EtcliError, InterruptedByUser, Problem
from etcli.device.adb import AdbDevice
from etcli.device.wire import was_ended_here
from etcli.output.console import Console
from etcli.output.labelled import LabelledConsole

R = TypeVar("R")


def on_each(devices: Sequence[AdbDevice], work: Callable[[AdbDevice, Console], R], console: Console) -> list[R]:
    """What `work` gives for each device, in their order. One device has the console to itself; several work in parallel.

    Raises:
        EtcliError: some failed: the problems of all, each with its device's serial. Its `etcli_result` is `{"devices": [...]}`, the
            results of those that did not fail among `{"serial", "errors"}` of those that did; its `etcli_done` lists the former.
        InterruptedByUser: Ctrl-C; the connections to those that were not done were ended. It bears the same.
    """
    if len(devices) == 1:
        return [work(devices[0], console)]
    lock = threading.Lock()

    def one(device: AdbDevice) -> R:
        labelled = LabelledConsole(console, device.serial, lock)
        try:
            return work(device, labelled)
        finally:
            labelled.flush()

    with ThreadPoolExecutor(len(devices), "etcli-device") as pool:
        futures = [pool.submit(one, device) for device in devices]
        try:
            wait(futures)
        except KeyboardInterrupt:
            for device in devices:
                device.close()
            wait(futures)
    return _results(devices, futures)


def _results(devices: Sequence[AdbDevice], futures: Sequence[Future[R]]) -> list[R]:
    problems: list[Problem] = []
    done: list[R] = []
    shown: list[Any] = []
    unexpected: BaseException | None = None
    for device, future in zip(devices, futures, strict=True):
        error = future.exception()
        if error is None:
            done.append(future.result())
            shown.append(done[-1])
            continue
        if isinstance(error, EtcliError):
            found = [_named(problem, device.serial) for problem in _interruption(error, device.serial).problems]
        else:
            unexpected = unexpected or error
            found = [Problem("internal", f"{device.serial}: {type(error).__name__}: {error}")]
        problems += found
        # of work that was cut short, what there is
        kept = getattr(error, "etcli_result", None)
        listed = [{"code": one.code, "message": one.message, "hint": one.hint} for one in found]
        shown.append({"serial": device.serial, "errors": listed} if kept is None else kept)
    if problems:
        failed = unexpected or EtcliError.many(problems)
        failed.etcli_result = {"devices": shown}  # type: ignore[attr-defined]
        failed.etcli_done = done  # type: ignore[attr-defined]
        raise failed
    return done


def _interruption(error: EtcliError, serial: str) -> EtcliError:
    """`error`, or what it means to a person who pressed Ctrl-C."""
    if not was_ended_here(error):
        return error
    return InterruptedByUser(
        f"interrupted on {serial}",
        code="interrupted",
        hint="Run the same command again: what is complete on a device is kept.",
    )


def _named(problem: Problem, serial: str) -> Problem:
    return (
        problem if serial in problem.message else dataclasses.replace(problem, message=f"{serial}: {problem.message}")
    )
