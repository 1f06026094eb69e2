"""What a build is made from, once everything is found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.build import upstream
from etcli.build.android import AndroidSettings
from etcli.build.apps import AppParts
from etcli.build.components import Component
from etcli.build.record import BuildRecord
from etcli.build.render import Toolset
from etcli.build.sources import RunnerSources
from etcli.tables.operators import OperatorLibrary
from etcli.tables.simulated_npu import SimulatedNpu
from etcli.tables.targets import Target


@dataclass(frozen=True)
class Inputs:
    """Everything that a build of `target` is made from. `upstream`: with MediaTek's runner of ExecuTorch's repository."""

    target: Target
    apps: AppParts | None
    openmp: bool
    parts: tuple[Component, ...]
    sources: RunnerSources
    libraries: tuple[OperatorLibrary, ...]
    simulated: SimulatedNpu | None
    vendor: tuple[Path, ...]
    tools: Toolset
    android: AndroidSettings | None
    files: dict[str, str]
    record: BuildRecord
    upstream: bool

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of what is built to be started."""
        return (*self.sources.programs, *([upstream.PROGRAM] if self.upstream else []))
