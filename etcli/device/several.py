"""The same work on several devices at once."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from etcli.common.errors import EtcliError, InterruptedByUser, Problem
from etcli.device.adb import AdbDevice
from etcli.output.console import Console
from etcli.output.labelled import LabelledConsole

R = TypeVar("R")


def on_each(devices: Sequence[AdbDevice], work: Callable[[AdbDevice, Console], R], console: Console) -> list[R]:
    """What `work` gives for each device, in their order. One device has the console to itself; several work in parallel.

    Raises:
        EtcliError: some failed: the problems of all, each with its device's serial. Its `etcli_result` is `{"devices": [...]}`, the
            results of those that did not fail among `{"serial", "errors"}` of those that did.
        InterruptedByUser: Ctrl-C; the connections to all of them were ended.
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
            raise InterruptedByUser(
                f"interrupted on {', '.join(device.serial for device in devices)}",
                code="interrupted",
                hint="Run the same command again: what is complete on a device is kept.",
            ) from None
    return _results(devices, futures)


def _results(devices: Sequence[AdbDevice], futures: Sequence[Future[R]]) -> list[R]:
    problems: list[Problem] = []
    results: list[R] = []
    shown: list[Any] = []
    for device, future in zip(devices, futures, strict=True):
        error = future.exception()
        if error is None:
            results.append(future.result())
            shown.append(results[-1])
        elif isinstance(error, EtcliError):
            named = [_named(problem, device.serial) for problem in error.problems]
            problems += named
            shown.append(
                {
                    "serial": device.serial,
                    "errors": [{"code": one.code, "message": one.message, "hint": one.hint} for one in named],
                }
            )
        else:
            raise error
    if problems:
        failed = EtcliError.many(problems)
        failed.etcli_result = {"devices": shown}  # type: ignore[attr-defined]
        raise failed
    return results


def _named(problem: Problem, serial: str) -> Problem:
    return (
        problem if serial in problem.message else dataclasses.replace(problem, message=f"{serial}: {problem.message}")
    )
