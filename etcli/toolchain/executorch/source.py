"""ExecuTorch compiled from a checkout of the user's, once for each set of what decides the result, and kept in the cache."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import BuildError, Problem, Problems, ToolError
from etcli.common.files import remove_tree, write_atomically
from etcli.common.hashing import value_sha256
from etcli.common.locks import exclusive
from etcli.common.process import describe_exit, stream
from etcli.common.templating import render
from etcli.common.workspace import cache_dir
from etcli.output.console import Console
from etcli.tables.executorch import load_executorch
from etcli.tables.targets import Target
from etcli.toolchain import cmake, ninja
from etcli.toolchain.build_failures import compile_errors, configure_errors, failure
from etcli.toolchain.executorch.checkout import Checkout, moved_submodules, read_checkout
from etcli.toolchain.executorch.flatc import host_flatc
from etcli.toolchain.executorch.package import ExecutorchPackage, release_numbers
from etcli.toolchain.executorch.prefix import config_dir, prefix_package
from etcli.toolchain.executorch.wanted import Wanted
from etcli.toolchain.executorch.wheel import installed_release
from etcli.toolchain.programs import apt_hint, on_path

_RECIPE = 1
"""Raised when what is done here changes in a way that the key does not show."""


@dataclass(frozen=True)
class SourceBuild:
    """One ExecuTorch to be compiled: `settings` are CMake's variables, `key` a hash over everything that decides what comes out.

    `folder` is where the installation is kept, `tree` CMake's build tree beside it, `log` what the last step said.
    """

    checkout: Checkout
    settings: dict[str, str]
    key: str

    @property
    def folder(self) -> Path:
        """The installation."""
        return cache_dir() / "executorch" / f"source-{self.key}"

    @property
    def tree(self) -> Path:
        """The build tree; it goes when everything is installed."""
        return self.folder.with_name(f".{self.folder.name}.tree")

    @property
    def done(self) -> bool:
        """Whether it is in the cache."""
        return config_dir(self.folder) is not None

    def log(self, step: str) -> Path:
        """The whole output of a step: `configure`, `build` or `install`."""
        return self.folder.with_name(f"{self.folder.name}.{step}.log")


def plan_source(target: Target, wanted: Wanted, root: Path) -> SourceBuild:
    """What would be compiled from the checkout in `root`; the checkout and the programs that it takes are verified, and nothing is started.

    Raises:
        ToolError: every fault, at once: those of `read_checkout`, `executorch.version`, `executorch.vendor_header`, `executorch.flatc`,
            `make.missing`, `cc.missing`.
        UsageError: CMake cannot build where the checkout or the cache is (`build.path`).
    """
    table = load_executorch()
    problems = Problems()
    problems.attempt(lambda: cmake.check_path(root, "Move the checkout."))
    problems.attempt(lambda: cmake.check_path(cache_dir(), "Set ETCLI_CACHE_DIR to another folder."))
    checkout = problems.attempt(lambda: read_checkout(root, table.submodules(wanted.components)))
    flatc = problems.attempt(lambda: host_flatc(root))
    for problem in _program_problems():
        problems.add(problem)
    if checkout is not None:
        problems.add(_release_problem(checkout))
        problems.add(_vendor_header_problem(checkout, wanted))
    settings = {**table.options(wanted.components), **_target_settings(target, wanted)}
    problems.raise_if_any(ToolError)
    assert checkout is not None  # noqa: S101 - its problems were raised
    settings["PYTHON_EXECUTABLE"] = sys.executable
    if flatc is not None:
        settings["FLATC_EXECUTABLE"] = str(flatc)
    compiler = wanted.compiler
    key = value_sha256(
        {
            "recipe": _RECIPE,
            "commit": checkout.commit,
            "changes": checkout.changes,
            "target": target.name,
            "settings": {
                name: value for name, value in settings.items() if name not in ("PYTHON_EXECUTABLE", "FLATC_EXECUTABLE")
            },
            "ndk": wanted.android.revision if wanted.android is not None else None,
            "compiler": [compiler.description, compiler.stamp] if compiler is not None else None,
        }
    )
    return SourceBuild(checkout, settings, key[:16])


def source_package(target: Target, wanted: Wanted, root: Path, console: Console | None = None) -> ExecutorchPackage:
    """The ExecuTorch of the checkout in `root` for `target`, compiled now if the cache does not hold it.

    An interrupted compilation goes on where it stopped. The installation passes the checks that any installation has to.

    Raises:
        ToolError: what `plan_source` and `prefix_package` find, or the cache cannot be written (`executorch.cache`).
        BuildError: CMake cannot configure it (`executorch.configure`) or it does not compile (`executorch.compile`, `executorch.install`);
            the first errors, what they mean where that is known, and the log's path.
    """
    plan = plan_source(target, wanted, root)

    def waiting() -> None:
        if console is not None:
            console.note(f"waiting for another process that compiles ExecuTorch from {root}")

    try:
        # The project writes into its own sources (third-party/flatcc/lib), so a checkout is compiled for one target at a time.
        lock = cache_dir() / "executorch" / f"checkout-{value_sha256(str(root.resolve()))[:16]}.lock"
        with exclusive(lock, on_wait=waiting):
            if not plan.done:
                _compile(plan, target, wanted, console)
    except OSError as error:
        raise ToolError(
            f"cannot keep an ExecuTorch in {plan.folder.parent}: {error.strerror or error}",
            code="executorch.cache",
            hint="Free some space there, make it writable, or set ETCLI_CACHE_DIR to another folder.",
        ) from error
    found = prefix_package(target, wanted, plan.folder, console)
    return ExecutorchPackage(found.root, found.release, found.version, plan.checkout.commit, "source", "installation")


def _program_problems() -> list[Problem]:
    """Programs for this machine's own tools (flatc, flatcc), which the project builds with Make whatever the target."""
    found = []
    if on_path("make") is None:
        found.append(
            ToolError.problem(
                "make was not found; ExecuTorch builds its own tools with it",
                code="make.missing",
                hint=apt_hint("make"),
            )
        )
    if not os.environ.get("CC") and on_path("cc") is None and on_path("gcc") is None and on_path("clang") is None:
        found.append(
            ToolError.problem("no C compiler for this machine was found", code="cc.missing", hint=apt_hint("gcc"))
        )
    return found


def _release_problem(checkout: Checkout) -> Problem | None:
    ours = installed_release()
    theirs, needed = release_numbers(checkout.release), release_numbers(ours)
    if theirs >= needed and theirs[0] == needed[0]:
        return None
    return ToolError.problem(
        f"the checkout in {checkout.root} is of ExecuTorch {checkout.release}, and {ours} exports the programs and is what the runner is written for",
        code="executorch.version",
        hint=f"git -C {checkout.root} checkout v{ours} && git -C {checkout.root} submodule update --init --recursive",
    )


def _vendor_header_problem(checkout: Checkout, wanted: Wanted) -> Problem | None:
    """The header of MediaTek's SDK that upstream's delegate includes from within the checkout."""
    path = checkout.root / "backends" / "mediatek" / "runtime" / "include" / "api" / "NeuronAdapter.h"
    if "backend_neuron" not in wanted.components or path.is_file():
        return None
    return ToolError.problem(
        f"upstream's delegate needs MediaTek's NeuronAdapter.h, and {checkout.root} has none",
        code="executorch.vendor_header",
        hint=f"Copy it out of MediaTek's SDK: cp SDK/.../NeuronAdapter.h {path}",
    )


def _target_settings(target: Target, wanted: Wanted) -> dict[str, str]:
    """Variables that say what is compiled for; the toolchain file of a cross target is written into the tree."""
    if wanted.android is not None:
        android = wanted.android
        return {
            "CMAKE_TOOLCHAIN_FILE": str(android.toolchain_file),
            "ANDROID_ABI": android.abi,
            "ANDROID_PLATFORM": f"android-{android.api_level}",
            "ANDROID_STL": android.stl,
            **dict(android.options),
        }
    settings = {}
    if (c := next((path for name in target.compiler.c if (path := on_path(name))), None)) is not None:
        settings["CMAKE_C_COMPILER"] = str(c)
    if wanted.compiler is not None and not target.cmake.cross:
        settings["CMAKE_CXX_COMPILER"] = str(wanted.compiler.path)
    return settings


def _compile(plan: SourceBuild, target: Target, wanted: Wanted, console: Console | None) -> None:
    """Configure, compile and install; the installation appears whole or not at all."""
    problems = Problems()
    driver = problems.attempt(cmake.verify)
    problems.attempt(ninja.verify)
    problems.raise_if_any(ToolError)
    assert driver is not None  # noqa: S101 - its problems were raised
    if console is not None:
        console.note(
            f"compiling ExecuTorch {plan.checkout.release} from {plan.checkout.root} for {target.name} (once; minutes)"
        )
        for path in moved_submodules(plan.checkout.root, load_executorch().submodules(wanted.components)):
            console.warn(
                f"{path} stands at another commit than the checkout asks for", code="executorch.submodule_moved"
            )
    settings = dict(plan.settings)
    if target.cmake.cross and wanted.android is None:
        name = wanted.compiler.path.name if wanted.compiler is not None else target.compiler.cxx[0]
        plan.tree.mkdir(parents=True, exist_ok=True)
        write_atomically(plan.tree / "toolchain.cmake", render("toolchain.cmake.j2", target=target, compiler_name=name))
        settings["CMAKE_TOOLCHAIN_FILE"] = str(plan.tree / "toolchain.cmake")
    configure = [
        *("-G", "Ninja", "-S", str(plan.checkout.root), "-B", str(plan.tree)),
        *(f"-DCMAKE_MAKE_PROGRAM={ninja.find()}", f"-DCMAKE_INSTALL_PREFIX={plan.folder}"),
        *(f"-D{name}={value}" for name, value in settings.items()),
    ]
    jobs = wanted.jobs or len(os.sched_getaffinity(0))
    unfinished = plan.folder.with_name(f".{plan.folder.name}.installing")
    remove_tree(unfinished)
    _step(plan, "configure", driver.path, configure, console)
    _step(plan, "build", driver.path, ["--build", str(plan.tree), "--parallel", str(jobs)], console)
    _step(plan, "install", driver.path, ["--install", str(plan.tree), "--prefix", str(unfinished)], console)
    remove_tree(plan.folder)
    unfinished.rename(plan.folder)
    remove_tree(plan.tree)
    for step in ("configure", "build", "install"):
        plan.log(step).unlink(missing_ok=True)


def _step(plan: SourceBuild, step: str, program: Path, arguments: list[str], console: Console | None) -> None:
    lines: list[str] = []
    env = {**dict.fromkeys(cmake.hidden_variables()), "NINJA_STATUS": ninja.STATUS, "LC_ALL": "C.UTF-8"}
    with ninja.progress("compiling ExecuTorch", console if step == "build" else None) as advance:

        def keep(line: str) -> None:
            lines.append(line)
            advance(line)
            if console is not None:
                console.detail(f"    {line}")

        code = stream([program, *arguments], keep, env=env, log=plan.log(step))
    if code == 0:
        return
    if code < 0:
        lines.append(f"cmake was {describe_exit(code)}")
    kind = {"build": "compile"}.get(step, step)
    errors = (compile_errors if step == "build" else configure_errors)(lines)
    explained = failure(f"ExecuTorch in {plan.checkout.root}: {kind} failed", lines, errors)
    raise BuildError(
        explained.message,
        code=f"executorch.{kind}",
        hint=f"{explained.hint} Log: {plan.log(step)}",
        file=plan.log(step),
    )
