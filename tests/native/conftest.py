"""The native runners built with sanitizers, and small random bundles to run with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from once import once
from tiny_bundle import BundleSpec, TinyBundle, shared_bundle

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """What a program did: exit status, events, stderr."""

    status: int
    events: list[dict[str, Any]]
    stderr: str

    def one(self, name: str) -> dict[str, Any]:
        """The only event of this name."""
        (event,) = [event for event in self.events if event["event"] == name]
        return event

    @property
    def tokens(self) -> list[int]:
        return [event["id"] for event in self.events if event["event"] == "token"]


def run_program(program: Path, *arguments: str | Path, emulator: Sequence[str] = ()) -> Run:
    """Run a native program; every line of its stdout has to be JSON."""
    done = subprocess.run(
        [*emulator, str(program), *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    return Run(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)


def cmake(*arguments: str | Path) -> str:
    """Run the cmake of this Python environment, return its output; its failure is the test's."""
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": folder + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(
        ["cmake", *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def native_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of native/ for this machine, sanitizers on."""
    import executorch

    package = Path(next(iter(executorch.__path__)))

    def build(folder: Path) -> None:
        cmake(
            *("-S", REPOSITORY / "native", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"),
            *("-DETCLI_SANITIZE=ON", f"-Dexecutorch_DIR={package / 'lib/cmake/executorch'}"),
        )
        cmake("--build", folder)

    return once(tmp_path_factory, "native-build", build)


@pytest.fixture(scope="session")
def llama_runner(native_build: Path) -> Callable[..., Run]:
    """`llama_runner(*arguments)` runs etcli_llama_runner."""
    return lambda *arguments: run_program(native_build / "runner" / "etcli_llama_runner", *arguments)


@pytest.fixture(scope="session")
def executor_runner(native_build: Path) -> Callable[..., Run]:
    """`executor_runner(*arguments)` runs etcli_executor_runner."""
    return lambda *arguments: run_program(native_build / "runner" / "etcli_executor_runner", *arguments)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TinyBundle]:
    """`tiny_bundle()` is an XNNPACK bundle with two prompt shapes and cache `shift`; the fields of `BundleSpec` give others."""
    return lambda **fields: shared_bundle(tmp_path_factory, BundleSpec(**fields))


@pytest.fixture
def changed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`changed(bundle, {key: value})` gives the configuration of a copy with some keys set, or left out for None."""

    def change(bundle: TinyBundle, values: dict[str, object]) -> Path:
        folder = tmp_path_factory.mktemp("changed") / "bundle"
        shutil.copytree(bundle.folder, folder)
        pairs = dict(line.split("=", 1) for line in bundle.config.read_text().splitlines())
        for key, value in values.items():
            pairs.pop(key, None)
            if value is not None:
                pairs[key] = str(value)
        config = folder / "runner.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
        return config

    return change
