"""How the stages of a smoke went: what the result and its JUnit report tell of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from etcli.common.errors import EtcliError
from etcli.export.result import ExportResult
from etcli.manifests.base import Part
from etcli.manifests.build import BuildManifest
from etcli.manifests.export_report import ChunkReport
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.output.junit import Case, Suite
from etcli.output.units import bytes_text

T = TypeVar("T")

CHECKS: Mapping[str, tuple[str, ...]] = {
    "device": ("a device is there", "a target fits it"),
    "export": ("the bundle is whole",),
    "build": ("what it needs is there", "it compiles, and its audit finds nothing"),
    "deploy": ("the device is free", "the device holds bundle and build"),
    "run": ("the runner answers",),
    "compare": ("the tokens agree with the reference's",),
}
"""The checks of each stage that every smoke has, in order; a stage may add some of what it made."""

_MOST_OUTPUT = 64_000
"""Characters of a check's output that a report holds: of more, the end, where failures are told."""


class Stage(Part):
    """A stage of a smoke run: seconds it took, and whether its output was current, so that it had nothing to do."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    current: bool = False
    seconds: float = 0.0
    message: str = ""


@dataclass
class Stages:
    """Runs the checks stage by stage and keeps how each went. A stage sets `current`, and adds to `more`, while it runs.

    `properties` say what was tested on what."""

    console: Console
    properties: dict[str, str] = field(default_factory=dict)
    done: list[Stage] = field(default_factory=list)
    current: bool = False
    more: list[Case] = field(default_factory=list)
    record: RunRecord | None = None
    _cases: dict[str, list[Case]] = field(default_factory=dict)
    _started: float = 0.0

    def run(self, name: str, action: Callable[[], T], *, check: str | None = None, ahead: bool = False) -> T:
        """Carry out `action` as a `check` of the stage `name`, by default its last one.

        One that is made `ahead` and succeeds leaves the stage to be done.
        """
        check = CHECKS[name][-1] if check is None else check
        self._started = time.monotonic()
        self.current = False
        self.more = []
        with self.console.recorded() as said:
            try:
                result = action()
            except BaseException as error:
                seconds = time.monotonic() - self._started
                message = str(error) if isinstance(error, EtcliError) else type(error).__name__
                self._add(Stage(name=name, outcome="failed", seconds=seconds, message=message))
                self._keep(name, _failed(check, seconds, error, _last(said)))
                raise
            if not ahead:
                self._add(self._passed(name))
        if self.current:
            said.append("current: nothing to do\n")
        self._keep(name, Case(check, time.monotonic() - self._started, output=_last(said)))
        return result

    def so_far(self, equal: bool) -> tuple[Stage, ...]:
        """The stages with the comparison under way as their last."""
        last = self._passed("compare") if equal else self._passed("compare").model_copy(update={"outcome": "failed"})
        return (*self.done, last)

    def suites(self) -> list[Suite]:
        """One suite a stage, one case a check; what an earlier failure kept from being done is skipped, and names it."""
        broken = next((stage.name for stage in self.done if stage.outcome == "failed"), None)
        suites = []
        for stage, checks in CHECKS.items():
            cases = list(self._cases.get(stage, ()))
            there = {case.name for case in cases}
            why = f"not reached: {broken} failed"
            cases += [Case(check, outcome="skipped", message=why) for check in checks if check not in there]
            suites.append(Suite(stage, cases))
        return suites

    def failure(self, interrupted: RunRecord | None) -> dict[str, object]:
        """What a smoke that failed has to show under the names of `SmokeResult`: the stages, and the run's record if there is one."""
        record = interrupted or self.record
        told: dict[str, object] = {} if record is None else dict(record.model_dump(mode="json"))
        return {**told, "stages": self._all()}

    def _all(self) -> tuple[Stage, ...]:
        by_name = {stage.name: stage for stage in self.done}
        return tuple(
            by_name.get(name) or Stage(name=name, outcome="skipped", message="an earlier stage failed")
            for name in CHECKS
        )

    def _passed(self, name: str) -> Stage:
        return Stage(name=name, outcome="passed", current=self.current, seconds=time.monotonic() - self._started)

    def _add(self, stage: Stage) -> None:
        if self.done and self.done[-1].name == stage.name:
            earlier = self.done.pop()
            stage = stage.model_copy(update={"seconds": earlier.seconds + stage.seconds})
        self.done.append(stage)

    def _keep(self, stage: str, case: Case) -> None:
        self._cases.setdefault(stage, []).extend([case, *self.more])


def program_cases(result: ExportResult) -> list[Case]:
    """A check for each program of the bundle: held against eager PyTorch, now, or when it was made in an earlier export.

    Programs are made side by side, so a check has no time of its own; its output says how long its worker took.
    """
    return [_program_case(report, current=result.current) for report in result.chunks]


def _program_case(report: ChunkReport, *, current: bool) -> Case:
    name = f"{report.file or f'chunk {report.index}'} computes what eager PyTorch does"
    if report.max_abs_error is None:
        return Case(name, outcome="skipped", message="it was exported with --no-verify")
    told = [f"{method}: largest difference {error:.3g}" for method, error in report.errors.items()]
    told.append(f"memory of its worker: {bytes_text(report.peak_memory_bytes)} at most")
    told += [f"{step}: {seconds:.2f} s" for step, seconds in report.seconds.items()]
    output = "".join(f"{line}\n" for line in told)
    if current or report.reused:
        return Case(name, outcome="skipped", message="current: it was held against it when it was made", output=output)
    return Case(name, output=output)


def binary_cases(manifest: BuildManifest, *, current: bool) -> list[Case]:
    """A check for each file that is pushed: the audit's, now or when the build was made."""
    cases = []
    for file in manifest.stage:
        name = f"audit of {file.path}"
        told = [f"{file.reason}, {bytes_text(file.size)}, sha256 {file.sha256}"]
        if file.elf is not None:
            told.append(f"{file.elf.machine}, needs {', '.join(file.elf.needed) or 'no library'}")
        output = "".join(f"{line}\n" for line in told)
        if current:
            cases.append(Case(name, outcome="skipped", message="current: it was audited when built", output=output))
        else:
            cases.append(Case(name, output=output))
    return cases


def _failed(check: str, seconds: float, error: BaseException, output: str) -> Case:
    if not isinstance(error, EtcliError):
        kind = "interrupted" if isinstance(error, KeyboardInterrupt) else "fault"
        return Case(check, seconds, "error", f"{type(error).__name__}: {error}".rstrip(": "), output, kind)
    told = []
    for problem in error.problems:
        place = f"{problem.place}: " if problem.place else ""
        told.append(f"{place}{problem.message} [{problem.code}]")
        if problem.hint:
            told.append(f"    {problem.hint}")
    return Case(check, seconds, "failed", str(error), output, error.problems[0].code, "\n".join(told))


def _last(said: list[str]) -> str:
    text = "".join(said)
    return text if len(text) <= _MOST_OUTPUT else f"(its beginning was left out)\n{text[-_MOST_OUTPUT:]}"
