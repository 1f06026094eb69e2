"""Compiler, delegate and NPU together, the vendor's parts simulated: what ExecuTorch's MediaTek backend makes computes what PyTorch does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from aarch64_native import build_for_aarch64, emulated

import etcli.export

EXPORT = """
import sys
import numpy
import torch
import executorch.kernels.quantized
from executorch.backends.mediatek import NeuropilotPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes import MemoryPlanningPass
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
    def forward(self, x, cache):
        new_cache = torch.cat([cache, x.unsqueeze(0)], 1)[:, -6:]
        return self.down(torch.nn.functional.relu(self.up(x))) + cache.sum(1), new_cache
net = Net().eval()
examples = {f"{rows}t6c_0": (torch.rand(rows, 8), torch.rand(1, 6, 8)) for rows in (4, 1)}
specs = [CompileSpec("platform-config", b"mt6991"), CompileSpec("ImportForever", b"\\x01")]
if sys.argv[2] == "shared":
    specs.append(CompileSpec("ExtractSharedBlobKey", b"net_0"))
methods = {name: torch.export.export(net, example, strict=True) for name, example in examples.items()}
edge = to_edge(methods, compile_config=EdgeCompileConfig(_check_ir_validity=False))
edge = edge.to_backend({name: NeuropilotPartitioner(specs) for name in methods})
planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning, extract_delegate_segments=True))
open(f"{sys.argv[1]}/model.pte", "wb").write(program.buffer)
for name, example in examples.items():
    for i, tensor in enumerate(example):
        tensor.numpy().tofile(f"{sys.argv[1]}/{name}.in{i}")
    with torch.no_grad():
        for i, tensor in enumerate(net(*example)):
            tensor.numpy().tofile(f"{sys.argv[1]}/{name}.out{i}")
"""

ALONE, SHARED = "alone", "shared"
ADAPTER, ALLOCATOR = "libneuronusdk_adapter.mtk.so", "libneuron_buffer_allocator.so"
RUNTIME = "libetcli_neuron_sim.so"  # beside the adapter, which hands its calls on to it


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with model.pte, inputs and outputs of its methods: each with its own weights (ALONE), and with shared ones (SHARED)."""
    sdk = Path(etcli.export.__path__[0]) / "simulated_sdk"
    folders = {}
    for specs in (ALONE, SHARED):
        folders[specs] = tmp_path_factory.mktemp("simulated")
        done = subprocess.run(
            [sys.executable, "-c", EXPORT, folders[specs], specs],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONPATH": str(sdk)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folders


def arguments(folder: Path, method: str, out: Path) -> list[str | Path]:
    inputs = [word for i in range(2) for word in ("--input", folder / f"{method}.in{i}")]
    return ["--model", folder / "model.pte", "--method", method, *inputs, "--iterations", "3", "--output-dir", out]


def check_outputs(folder: Path, method: str, out: Path) -> None:
    for i in range(2):
        ours = numpy.fromfile(out / f"output_{i}.bin", numpy.float32)
        reference = numpy.fromfile(folder / f"{method}.out{i}", numpy.float32)
        assert ours.shape == reference.shape
        # One float32 layer: sums of 16 products in another order.
        numpy.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("specs", [ALONE, SHARED])
@pytest.mark.parametrize("libraries", [(ADAPTER, ALLOCATOR), (ADAPTER,)], ids=["allocator", "plain"])
def test_what_the_backend_compiles_computes_what_pytorch_does(
    specs: str,
    libraries: tuple[str, ...],
    programs: dict[str, Path],
    native_build: Path,
    executor_runner: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = tmp_path / "device"
    device.mkdir()
    for name in (*libraries, RUNTIME):
        shutil.copy(native_build / "neuron_sim" / name, device)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(device))
    for method in ("4t6c_0", "1t6c_0"):
        trace = tmp_path / f"{method}.trace"
        monkeypatch.setenv("ETCLI_NEURON_SIM_TRACE", str(trace))
        done = executor_runner(*arguments(programs[specs], method, tmp_path))
        assert done.status == 0, done.stderr
        check_outputs(programs[specs], method, tmp_path)
        calls = [line for line in trace.read_text().splitlines() if "NeuronExecution_" in line]
        assert sum("NeuronExecution_compute" in line for line in calls) == 3
        from_memory = sum("FromMemory" in line for line in calls)
        if ALLOCATOR in libraries:
            # Hints and bindings of two inputs and two outputs, once, and the shared weights; then nothing but computing.
            assert from_memory == 8 + (specs == SHARED)
            assert all("NeuronExecution_compute" in line for line in calls[-3:-1])
        else:
            assert from_memory == 0


@pytest.mark.parametrize(
    ("failing", "code"), [("NeuronModel_finish", "runner.load"), ("NeuronExecution_compute:2", "runner.execute")]
)
def test_a_failure_of_the_simulated_npu_is_told(
    failing: str,
    code: str,
    programs: dict[str, Path],
    native_build: Path,
    executor_runner: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(native_build / "neuron_sim"))
    monkeypatch.setenv("ETCLI_NEURON_SIM_FAIL", failing)
    done = executor_runner(*arguments(programs[SHARED], "4t6c_0", tmp_path))
    error = done.one("error")
    assert error["code"] == code
    assert f"method '4t6c_0' on the NPU: {failing.partition(':')[0]} failed with NEURON_" in error["message"]


@pytest.fixture(scope="module")
def for_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The delegate's tests, the runner and the simulated libraries for the other processor."""
    folder = tmp_path_factory.mktemp("neuron-aarch64")
    fakes = ("fake_whole_adapter", "fake_whole_allocator", "fake_whole_performance", "fake_plain_adapter")
    simulated = ("libneuronusdk_adapter.mtk", "libneuron_buffer_allocator")
    build_for_aarch64(folder, ["neuron_tests", *fakes, *simulated, "etcli_executor_runner"])
    return folder


# Files of native/neuron/tests by the libraries that they are run with there.
FILES = {
    "whole": (
        *("compile_specs", "execute", "init", "memory", "payload", "performance"),
        *("rebinding", "runner_memory", "shared_weights"),
    ),
    "plain": ("execute", "init", "runner_memory", "shared_weights"),
}


@pytest.mark.full
@pytest.mark.parametrize("libraries", FILES)
def test_the_delegate_on_aarch64(libraries: str, for_aarch64: Path) -> None:
    tests = for_aarch64 / "neuron" / "tests"
    variables = {"LD_LIBRARY_PATH": str(tests / libraries)}
    for name in FILES[libraries]:
        command = emulated(
            tests / "neuron_tests", f"--source-file=*tests/{name}.cpp", "--no-version", environment=variables
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        counts = re.search(r"test cases: *(\d+) \| *(\d+) passed", done.stdout)
        assert counts, done.stdout
        assert int(counts[1]) == int(counts[2]) > 0


@pytest.mark.full
@pytest.mark.parametrize("specs", [ALONE, SHARED])
def test_a_network_on_the_simulated_npu_of_an_aarch64_device(
    specs: str, programs: dict[str, Path], for_aarch64: Path, tmp_path: Path
) -> None:
    for method in ("4t6c_0", "1t6c_0"):
        command = emulated(
            for_aarch64 / "runner" / "etcli_executor_runner",
            *map(str, arguments(programs[specs], method, tmp_path)),
            environment={"LD_LIBRARY_PATH": str(for_aarch64 / "neuron_sim")},
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        check_outputs(programs[specs], method, tmp_path)
