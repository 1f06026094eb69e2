"""What a build is made from, once everything is found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.build import upstream
from etcli.build.android import cpu_flags
from etcli.build.asked import Asked
from etcli.build.record import BuildRecord, make_record
from etcli.build.render import Toolset, render_project
from etcli.build.sources import RunnerSources, read_sources
from etcli.build.tools import HostTools
from etcli.common.hashing import file_sha256
from etcli.output.console import Console
from etcli.recipe.fingerprint import build_fingerprint
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain import executorch


@dataclass(frozen=True)
class Inputs:
    """Everything that the build that was `asked` for is made from.

    `vendor` are libraries of MediaTek's to be staged, `files` the rendered project by name; `upstream`: with MediaTek's runner of ExecuTorch's
    repository.
    """

    asked: Asked
    tools: Toolset
    sources: RunnerSources
    vendor: tuple[Path, ...]
    files: dict[str, str]
    record: BuildRecord
    upstream: bool

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of what is built to be started."""
        return (*self.sources.programs, *([upstream.PROGRAM] if self.upstream else []))


def make_inputs(asked: Asked, host: HostTools, vendor: tuple[Path, ...], console: Console) -> Inputs:
    """The project rendered for what was found, and the record of all that goes into it. ExecuTorch is fetched or compiled now if need be.

    Raises:
        ToolError: ExecuTorch cannot be had.
        BuildError: its checkout does not compile, or the sources are not as described.
    """
    # Slow, so it waits until nothing else is known to be missing.
    package = executorch.find(asked.target, host.wanted, console)
    tools = Toolset(host.compiler, package, host.ninja, host.ndk)
    sources = read_sources(asked.native)
    files = dict(
        render_project(
            asked.target,
            tools,
            asked.parts,
            sources,
            asked.libraries,
            openmp=asked.openmp,
            simulated=asked.simulated,
            android=asked.android,
            cpu_flags=cpu_flags(asked.loaded, asked.target),
            apps=asked.apps,
            upstream=host.upstream,
        )
    )
    fingerprint = build_fingerprint(asked.loaded.recipe, asked.target.name)
    hashes = _hashes(asked, sources, vendor)
    record = make_record(asked.folder, files, tools, hashes, fingerprint, own=asked.own, android=asked.android)
    return Inputs(asked, tools, sources, vendor, files, record, host.upstream is not None)


def _hashes(asked: Asked, sources: RunnerSources, vendor: tuple[Path, ...]) -> dict[str, str]:
    """SHA-256 of every source of etcli's and library of MediaTek's, by a name. The record has the user's own libraries beside them."""
    shipped: tuple[RunnerSources | OperatorLibrary, ...] = (
        sources,
        *(one for one in asked.libraries if not one.own),
    )
    hashes = {f"{part.root.name}/{name}": sha256 for part in shipped for name, sha256 in part.hashes.items()}
    for more in (asked.simulated, asked.apps):
        hashes |= more.hashes if more is not None else {}
    return hashes | {f"vendor/{path.name}": file_sha256(path) for path in vendor}
