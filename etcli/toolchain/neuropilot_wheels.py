"""MediaTek's Python packages in the interpreter that compiles for the NPU: right, wrong, or missing with how to install them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, ToolError
from etcli.common.needs import Need, missing_need, needed
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.neuropilot import Wheel, neuropilot
from etcli.toolchain.interpreter import KEY, Interpreter, ask, worker_python
from etcli.toolchain.loopback import check_loopback
from etcli.toolchain.neuropilot import find_sdk, find_wheels
from etcli.toolchain.programs import older, version_in

_OWN = ("etcli", "executorch", "torch")
"""What the worker runs beside MediaTek's: the same versions as here, since the two write one bundle."""


def compiler_needs(loaded: LoadedRecipe) -> Iterator[Need]:
    """What compiling with MediaTek's tools needs of this machine: interpreter, system, packages, and connections over 127.0.0.1."""
    name, why = "python of the NPU's compiler", "runs MediaTek's converter and compiler"
    packages = (*(wheel.name for wheel in neuropilot().wheels), *_OWN)
    try:
        python = ask(worker_python(loaded), packages)
    except EtcliError as error:
        yield missing_need(name, why, error)
        for wheel in neuropilot().wheels:
            yield needed(wheel.name, wheel.why, _absent(wheel, None, _root(loaded)))
    else:
        yield _python_need(name, why, python, loaded)
        yield _host_need(python)
        root = _root(loaded)
        for wheel in neuropilot().wheels:
            yield _wheel_need(wheel, python, root)
        if python.path != Path(sys.executable):  # this one's are looked at for every recipe
            for package in _OWN:
                yield _own_need(package, python)
    try:
        check_loopback()
    except EtcliError as error:
        yield missing_need("localhost", "MediaTek's compiler talks to its own parts over 127.0.0.1", error)
    else:
        yield Need("localhost", "MediaTek's compiler talks to its own parts over 127.0.0.1", "ok", "127.0.0.1 answers")


def _python_need(name: str, why: str, python: Interpreter, loaded: LoadedRecipe) -> Need:
    wanted = next((wheel.python for wheel in neuropilot().wheels if wheel.python is not None), None)
    if wanted is None or (python.minor == wanted and python.implementation == "CPython"):
        return Need(name, why, "ok", f"{python.implementation} {python.version}", str(python.path))
    place = loaded.location(KEY)
    problem = ToolError.problem(
        f"{KEY}: {python.path} is {python.implementation} {python.version}, MediaTek's converter exists for CPython {wanted} alone",
        code="neuropilot.python",
        hint=f"Make an environment with Python {wanted} (python{wanted} -m venv .venv-neuron), install etcli and the SDK's wheels in it, "
        f"and set {KEY}: .venv-neuron/bin/python.",
        file=place.file,
        line=place.line,
        column=place.column,
    )
    return needed(name, why, problem, str(python.path))


def _host_need(python: Interpreter) -> Need:
    host = neuropilot().host
    name, why = "system of the NPU's compiler", f"MediaTek's compiler exists for {host.system} {host.machine}"
    text = f"{python.system} {python.machine}"
    if (python.system, python.machine) == (host.system, host.machine):
        return Need(name, why, "ok", text)
    problem = ToolError.problem(
        f"this machine is {text}, MediaTek's compiler exists for {host.system} {host.machine} alone",
        code="neuropilot.system",
        hint="Export on such a machine and carry the bundle over (etcli bundle pack, etcli bundle unpack); WSL 2 on a PC is one.",
    )
    return needed(name, why, problem)


def _wheel_need(wheel: Wheel, python: Interpreter, root: Path | None) -> Need:
    name, found = wheel.name, python.packages.get(wheel.name)
    if found is None:
        return needed(name, wheel.why, _absent(wheel, python, root))
    if found in wheel.versions:
        return Need(name, wheel.why, "ok", found, str(python.path))
    oldest = min(wheel.versions, key=lambda text: [int(word) for word in (version_in(text) or "0").split(".")])
    number, least = version_in(found), version_in(oldest) or "0"
    if number is None or older(number, least):
        problem = ToolError.problem(
            f"{name} is version {found}, {oldest} is the oldest usable",
            code="neuropilot.wheel_version",
            hint=_install(wheel, python, root),
        )
        return needed(name, wheel.why, problem, str(python.path))
    hint = f"version {found} is not validated; {' and '.join(wheel.versions)} go with this ExecuTorch"
    return Need(name, wheel.why, "warning", found, str(python.path), hint)


def _absent(wheel: Wheel, python: Interpreter | None, root: Path | None) -> Problem:
    where = (
        f"is not installed in {python.path}" if python is not None else "cannot be looked for without its interpreter"
    )
    return ToolError.problem(f"{wheel.name} {where}", code="neuropilot.wheel", hint=_install(wheel, python, root))


def _install(wheel: Wheel, python: Interpreter | None, root: Path | None) -> str:
    """The pip line for the wheel that the SDK holds, or where to get it."""
    pip = f"{shlex.quote(str(python.path)) if python is not None else 'PYTHON'} -m pip install"
    tag = None if wheel.python is None else f"cp{wheel.python.replace('.', '')}"
    files = find_wheels(root, wheel.name)
    fitting = [path for path in files if tag is None or f"-{tag}-" in path.name]
    wanted = f"{wheel.name} {wheel.versions[0]}"
    if fitting:
        newest = next(
            (path for path in fitting if path.name.startswith(f"{wheel.name}-{wheel.versions[0]}-")), fitting[0]
        )
        return f"Install it: {pip} {shlex.quote(str(newest))}"
    if files:
        return f"The SDK has {files[0].name}, which is for another Python than {wheel.python}: download that for {tag}, from {neuropilot().portal}"
    return f"Download {wanted} with the NeuroPilot Express SDK from {neuropilot().portal}, then: {pip} FILE"


def _own_need(package: str, python: Interpreter) -> Need:
    name, why = f"{package} for the NPU's compiler", "the worker that compiles is of this etcli and ExecuTorch"
    try:
        here: str | None = metadata.version(package)
    except metadata.PackageNotFoundError:
        here = None  # said of this interpreter already
    found = python.packages.get(package)
    if found is not None and (here is None or _public(found) == _public(here)):
        return Need(name, why, "ok", found, str(python.path))
    message = (
        f"{package} is not installed in {python.path}"
        if found is None
        else f"{package} is {found} in {python.path}, and {here} here"
    )
    problem = ToolError.problem(
        message,
        code="neuropilot.worker_package",
        hint=_install_own(package, here, python),
    )
    return needed(name, why, problem, str(python.path))


def _install_own(package: str, here: str | None, python: Interpreter) -> str:
    pip = f"{shlex.quote(str(python.path))} -m pip install"
    if package == "etcli":
        # no package index has it, and anyone could take a name that is free there
        return f"Install it from where this one came, a wheel or a folder with its source: {pip} PATH"
    return f"Install it: {pip} {shlex.quote(f'{package}=={_public(here)}' if here else package)}"


def _public(version: str) -> str:
    """Without the local part, by which wheels of torch for CPUs and for GPUs differ."""
    return version.partition("+")[0]


def _root(loaded: LoadedRecipe) -> Path | None:
    try:
        return find_sdk(loaded).root
    except EtcliError:
        return None  # said as a need of its own
