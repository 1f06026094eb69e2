"""Everything a recipe needs on this machine and device: present with its version, or exactly how to get it.

Nothing is downloaded, built or imported; a need that etcli meets by itself (a wheel it will fetch) is said to be, not called missing.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from etcli.build.android import android_settings
from etcli.build.components import operator_libraries
from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.hub_errors import missing_package, offline_problem, package_is_missing
from etcli.checkpoint.source import peek
from etcli.common.assets import asset_dir
from etcli.common.errors import CheckpointError, EtcliError, ToolError
from etcli.common.needs import Look, Need, missing_need, missing_needs, needed, problems_of, tried, tried_together
from etcli.common.wheels import forbidden
from etcli.common.workspace import offline
from etcli.device.base import Device
from etcli.device.program import adb_program
from etcli.device.virtual.native import init_program
from etcli.export.needs import size_needs, tool_needs
from etcli.manifests.run_record import DeviceFacts
from etcli.output.console import Console
from etcli.recipe.custom_ops import own_operator_problems
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.neuron import neuron_problems
from etcli.recipe.sources import adapter_path
from etcli.recipe.support import unsupported
from etcli.tables.targets import Target, known_target
from etcli.toolchain import bubblewrap, cmake, compilers, ninja, qemu
from etcli.toolchain.ndk import Ndk, find_ndk
from etcli.toolchain.neuropilot import device_needs as sdk_needs
from etcli.toolchain.programs import answer, version_in
from etcli.verbs.device_needs import device_needs
from etcli.verbs.executorch_needs import executorch_needs
from etcli.verbs.targets import device_target


@dataclass(frozen=True)
class Diagnosis:
    """All needs of a recipe for one target, and the device that was looked at. `archive` is the support archive that was written of it."""

    recipe: str
    target: str
    needs: tuple[Need, ...]
    device: DeviceFacts | None = None
    archive: Path | None = None

    @property
    def missing(self) -> tuple[Need, ...]:
        """Needs that stop the recipe."""
        return tuple(need for need in self.needs if need.status == "missing")

    def raise_if_missing(self) -> None:
        """Raise every missing need as one error.

        Raises:
            EtcliError: at least one need is missing; its `etcli_result` is this diagnosis, so that a document holds what is there as well.
        """
        problems = problems_of(self.missing)
        if problems:
            error = EtcliError.many(problems)
            error.etcli_result = self  # type: ignore[attr-defined]
            raise error


def doctor(
    loaded: LoadedRecipe,
    target: str | None,
    device: Callable[[], Device] | None,
    console: Console,
    ndk: Path | None = None,
    executorch_root: Path | None = None,
    *,
    deep: bool = False,
) -> Diagnosis:
    """Look at everything `loaded` needs for `target`; without one, for the target of the recipe, of the device, or of the virtual phone.

    `ndk` is the folder of `--ndk`, `executorch_root` that of `--executorch`. With `deep` what an export loads is loaded as well, in other
    processes; without it neither PyTorch nor ExecuTorch is imported anywhere.
    """
    of_device: list[Need] = []
    chosen: Device | None = None
    if device is not None:
        try:
            chosen = device()
            facts = chosen.facts()
        except EtcliError as error:
            chosen = None
            of_device += missing_needs("device", "where the model runs", error.problems)
        else:
            text = f"{facts.serial} {facts.model} ({facts.abi})"
            of_device.append(Need("device", "where the model runs", "ok", facts.os, text))
            of_device += device_needs(loaded, chosen)
    name = target or loaded.recipe.build.target
    if name == "auto":
        try:
            name = device_target(chosen) if chosen is not None else "linux-aarch64"
        except EtcliError as error:
            of_device.append(missing_need("target", "a build that fits the device", error))
            name = "linux-aarch64"
    row = known_target(name)
    emulated = chosen.facts().emulated if chosen is not None else row.system == "linux"
    with tried_together(_programs(row, emulated=emulated)) as programs:
        needs: list[Need] = [_python(), *_packages(), *_recipe(loaded), *_checkpoint(loaded), *tool_needs(loaded)]
        of_target = list(_target_needs(loaded, row, ndk, executorch_root))
        if loaded.recipe.neuron is not None:
            of_target += sdk_needs(loaded)
        needs += [*programs(), *of_target, *of_device, *size_needs(loaded, Path.cwd())]
    if deep:
        from etcli.verbs.deep_needs import deep_needs

        needs += deep_needs(loaded, console)
    for need in needs:
        if need.status == "warning":
            console.warn(f"{need.name}: {need.hint or need.version}", code=f"doctor.{need.name.split()[0].lower()}")
    return Diagnosis(loaded.recipe.name, name, tuple(needs), chosen.facts() if chosen is not None else None)


def _programs(target: Target, *, emulated: bool) -> list[tuple[str, str, Look]]:
    """Programs that are asked for their version; `emulated` is whether the virtual device is the one that is meant."""
    found: list[tuple[str, str, Look]] = [
        ("cmake", "configures the build", lambda: _program(cmake.verify())),
        ("ninja", "runs the build", lambda: _program(ninja.verify())),
        ("adb", "reaches the device", _adb),
    ]
    if emulated:
        found.append(("bubblewrap", "the virtual device's own /data", lambda: _program(bubblewrap.verify())))
        found.append(("init", "the virtual device's first process, compiled here once", _init))
        if target.emulator is not None:
            why = f"runs {target.name} programs on the virtual device"
            found.append(("qemu", why, lambda: _program(qemu.verify(target))))
    return found


def _target_needs(
    loaded: LoadedRecipe, target: Target, ndk: Path | None, executorch_root: Path | None
) -> Iterable[Need]:
    program: Path | None = None
    found: Ndk | None = None
    if target.system == "android":
        yield tried("build for Android", "the lowest Android, and the C++ runtime", lambda: _settings(loaded, target))
        name, why = "Android NDK", "compiler, linker and C++ runtime for phones"
        try:
            found = find_ndk(loaded, target, ndk)
        except EtcliError as error:
            for problem in error.problems:
                yield needed(name, why, problem)
        else:
            remarks = "; ".join(found.remarks())
            version = f"{found.release} ({found.revision}), named by {found.said_by}"
            yield Need(name, why, "warning" if remarks else "ok", version, str(found.root), remarks or None)
            program = found.compiler
    if program is not None or target.system != "android":
        name = f"C++ compiler for {target.name}"
        yield tried(name, "compiles the runner", lambda: _compiler(target, program))
    yield from executorch_needs(loaded, target, executorch_root, found)


def _program(program: object) -> tuple[str, str]:
    return str(getattr(program, "version")), str(getattr(program, "path"))  # noqa: B009


def _settings(loaded: LoadedRecipe, target: Target) -> tuple[str, str]:
    settings = android_settings(loaded, target, operator_libraries(loaded, asset_dir("native")))
    return (f"API level {settings.api_level}, {settings.stl}" if settings is not None else ""), ""


def _compiler(target: Target, program: Path | None) -> tuple[str, str]:
    found = compilers.verify(target, program)
    return f"{found.kind} {found.version}", str(found.path)


def _init() -> tuple[str, str]:
    return "compiled", str(init_program())


def _adb() -> tuple[str, str]:
    path = Path(adb_program())
    return version_in(answer(path, "--version") or "") or "of unknown version", str(path)


def _python() -> Need:
    version = platform.python_version()
    if (3, 10) <= sys.version_info[:2] < (3, 14):
        return Need("python", "runs etcli", "ok", version, sys.executable)
    problem = ToolError.problem(
        f"Python {version} is not supported",
        code="python.version",
        hint="Use Python 3.10 to 3.13; 3.11 is the tested one.",
    )
    return needed("python", "runs etcli", problem, sys.executable)


def _packages() -> Iterable[Need]:
    for name, why in (
        ("executorch", "lowers the model, and brings the runtime"),
        ("torch", "reads and traces the model"),
    ):
        try:
            yield Need(name, why, "ok", metadata.version(name), str(metadata.distribution(name).locate_file("")))
        except metadata.PackageNotFoundError:
            problem = ToolError.problem(
                f"the package {name} is not installed",
                code=f"{name}.missing",
                hint=f"Install it: {sys.executable} -m pip install {name}",
            )
            yield needed(name, why, problem)


def _recipe(loaded: LoadedRecipe) -> list[Need]:
    refused = [*unsupported(loaded), *own_operator_problems(loaded), *neuron_problems(loaded)]
    if not refused:
        return [Need("recipe", "says what to do", "ok", loaded.recipe.name, str(loaded.path))]
    return [needed("recipe", "says what to do", problem, str(problem.file or loaded.path)) for problem in refused]


def _checkpoint(loaded: LoadedRecipe) -> list[Need]:
    name, why = "checkpoint", "the model's weights"
    source = loaded.recipe.model.source
    try:
        path = peek(loaded)
    except EtcliError as error:
        return missing_needs(name, why, error.problems)
    if path is None and source.startswith("hf:") and package_is_missing():
        return [needed(name, why, missing_package(source))]
    if path is None and offline():
        forbids = offline_problem(source) if source.startswith("hf:") else forbidden(source, CheckpointError)
        return [needed(name, why, forbids)]
    if path is None:
        return [Need(name, why, "fetched later", source, "", "etcli export fetches it.")]
    problems = header_problems(path, adapter_path(loaded))
    if problems:
        return missing_needs(name, why, problems, str(path))
    if loaded.recipe.model.quantize is not None:
        quantised = f"{source}, which export quantises ({loaded.recipe.model.quantize}, demonstration quality)"
        return [Need(name, why, "ok", quantised, str(path))]
    return [Need(name, why, "ok", source, str(path))]
