"""Things that a recipe needs of a machine or device, and what was found of each. `doctor` lists them; stages refuse for want of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from etcli.common.errors import EtcliError, Problem

Status = Literal["ok", "missing", "warning", "fetched later", "not needed"]


@dataclass(frozen=True)
class Need:
    """One thing the recipe needs: what it is, why, and what was found. `problem` is set where it is missing.

    `not needed`: it was not found, and this recipe does without.
    """

    name: str
    why: str
    status: Status
    version: str = ""
    where: str = ""
    hint: str | None = None
    problem: Problem | None = None


def tried(name: str, why: str, look: Callable[[], tuple[str, str] | Need]) -> Need:
    """What `look` finds (version and place, or the need itself), or what its error says is missing."""
    try:
        found = look()
    except EtcliError as error:
        return missing_need(name, why, error)
    return found if isinstance(found, Need) else Need(name, why, "ok", *found)


Look = Callable[[], "tuple[str, str] | Need"]


@contextlib.contextmanager
def tried_together(looks: Sequence[tuple[str, str, Look]]) -> Iterator[Callable[[], list[Need]]]:
    """Looks at each of (name, why, look) at the same time while the block runs: programs that are asked for their version take their time.

    Yields a function that waits for them and gives what they found, in their order.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(looks)), thread_name_prefix="etcli-need") as pool:
        found = [pool.submit(tried, *look) for look in looks]
        yield lambda: [future.result() for future in found]


def missing_need(name: str, why: str, error: EtcliError) -> Need:
    """The need that `error` is about."""
    return needed(name, why, error.problems[0])


def missing_needs(name: str, why: str, problems: Iterable[Problem], where: str = "") -> list[Need]:
    """A need for each of `problems`: all that stands against one thing, at once."""
    return [needed(name, why, problem, where) for problem in problems]


def needed(name: str, why: str, problem: Problem, where: str = "") -> Need:
    """A need that `problem` says is missing, or of the wrong version."""
    return Need(name, why, "missing", problem.message, where, problem.hint, problem)


def problems_of(needs: Iterable[Need]) -> list[Problem]:
    """The problems of those that are missing."""
    return [need.problem for need in needs if need.problem is not None]
