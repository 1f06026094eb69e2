"""CMake's build tree of one build: configured when needed, compiled, installed into a folder; failures cut down to their cause."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etcli.build.render import ARCHIVES, BINARY_DIR, BUILD_TYPE, OWN_FOLDER
from etcli.common.errors import BuildError
from etcli.common.files import remove_tree
from etcli.common.process import describe_exit, stream
from etcli.output.console import Console
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain import ninja
from etcli.toolchain.build_failures import (
    compile_errors,
    configure_errors,
    failure,
    first_error_in,
    link_errors_in,
    link_remedy,
    remedy,
)
from etcli.toolchain.cmake import cache_value, hidden_variables

CONFIGURED = "etcli-configured.json"
"""In the build tree once a configuration has succeeded: the record it was made for."""


@dataclass(frozen=True)
class Tree:
    """The build tree of the project in `folder`, driven through `cmake` and the preset `preset`.

    `own` are the user's operator libraries, `env` variables for CMake that the project asks for.
    """

    folder: Path
    cmake: Path
    preset: str
    console: Console
    own: tuple[OperatorLibrary, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The tree itself."""
        return self.folder / BINARY_DIR

    @property
    def configured(self) -> Path:
        """The mark of a finished configuration."""
        return self.path / CONFIGURED

    def archive(self, name: str) -> Path:
        """The static library of the operator library `name`."""
        return self.path / ARCHIVES / f"lib{name}.a"

    def remove(self) -> None:
        """Forget everything that was configured and compiled."""
        remove_tree(self.path)

    def configure(self) -> None:
        """Run `cmake --preset`.

        Raises:
            BuildError: code `build.configure`, or `build.type` when the cache did not take the build type.
        """
        ignored = sorted(name for name in hidden_variables() if os.environ[name])
        if ignored:
            self.console.note(f"    not used for a build, whose flags stand in its project: {', '.join(ignored)}")
        # A folder of operators that an earlier recipe named would win over that of machine.cmake.
        lines = self._run(["--preset", self.preset, "-U", f"{OWN_FOLDER}*"], "configure")
        if lines is not None:
            self._fail("configure", "CMake could not configure the build", lines, configure_errors(lines))
        found = cache_value(self.path / "CMakeCache.txt", "CMAKE_BUILD_TYPE")
        if found != BUILD_TYPE:
            raise BuildError(
                f"the build tree is configured as {found or 'no build type'}, not {BUILD_TYPE}",
                code="build.type",
                hint="Build from nothing: add --clean.",
                file=self.path / "CMakeCache.txt",
            )

    def compile(self, jobs: int) -> None:
        """Run `cmake --build` with `jobs` compilers at once.

        Raises:
            BuildError: code `build.compile`, with the first errors and the log's path; `build.operators` where the first error is in a source
                of the user's own, with its place.
        """
        with ninja.progress("compiling", self.console) as on_line:
            lines = self._run(["--build", "--preset", self.preset, "--parallel", str(jobs)], "build", on_line)
        if lines is None:
            return
        for library in sorted(self.own, key=lambda one: -len(one.root.parts)):  # one folder may stand in another
            self._fail_in(library, lines)
        self._fail("compile", "the runner does not compile", lines, compile_errors(lines))

    def _fail_in(self, library: OperatorLibrary, lines: list[str]) -> None:
        """Raise the failure of an operator library of the user's own, if it is one."""
        log = f"Log: {self.log('build')}"
        if (found := first_error_in(lines, library.root)) is not None:
            raise BuildError(
                "\n    ".join((f"{found.message} (operator library {library.name})", *found.more)),
                code="build.operators",
                hint=f"{remedy([found.message]) or 'Correct the source.'} {log}",
                file=found.file,
                line=found.line,
                column=found.column,
            )
        if errors := link_errors_in(lines, self.archive(library.name).name):
            raise BuildError(
                "".join((f"the operator library {library.name} does not link:", *(f"\n    {line}" for line in errors))),
                code="build.operators",
                hint=f"{link_remedy(errors, library.root / DESCRIPTION)} {log}",
                file=library.root / DESCRIPTION,
            )

    def install(self, prefix: Path) -> None:
        """Run `cmake --install` into `prefix`; programs lose their symbols there, the tree keeps them.

        Raises:
            BuildError: code `build.install`.
        """
        lines = self._run(["--install", str(self.path), "--prefix", str(prefix), "--strip"], "install")
        if lines is not None:
            self._fail("install", "CMake could not put the build together", lines, configure_errors(lines))

    def log(self, step: str) -> Path:
        """Where the output of `configure`, `build` or `install` is kept."""
        return self.folder / "logs" / f"{step}.log"

    def _run(self, arguments: list[str], step: str, on_line: Callable[[str], None] | None = None) -> list[str] | None:
        """The output's lines if the run failed, else None."""
        lines: list[str] = []

        def keep(line: str) -> None:
            lines.append(line)
            self.console.detail(f"    {line}")
            if on_line is not None:
                on_line(line)

        env = {**dict.fromkeys(hidden_variables()), "NINJA_STATUS": ninja.STATUS, "LC_ALL": "C.UTF-8", **self.env}
        code = stream([self.cmake, *arguments], keep, cwd=self.folder, env=env, log=self.log(step))
        if code < 0:
            lines.append(f"cmake was {describe_exit(code)}")
        return lines if code else None

    def _fail(self, kind: str, what: str, lines: list[str], errors: list[str]) -> None:
        step = {"compile": "build"}.get(kind, kind)
        explained = failure(what, lines, errors)
        raise BuildError(
            explained.message,
            code=f"build.{kind}",
            hint=f"{explained.hint} Log: {self.log(step)}",
            file=self.log(step),
        )
