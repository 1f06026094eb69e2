"""Programs that ExecuTorch's own MediaTek backend makes, run by our delegate: with stand-ins for the vendor's compiler and device libraries."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The vendor's Python packages, as far as the backend of the wheel calls them. A network is what native/neuron/tests/fake.h says: it adds its
# inputs and the first of its shared weights.
STAND_INS = {
    "mtk_converter/__init__.py": """
import json
class PyTorchV2Converter:
    @classmethod
    def from_exported_program(cls, program):
        converter = cls()
        values = {node.name: node.meta["val"] for node in program.graph.nodes if "val" in node.meta}
        signature = program.graph_signature
        converter.sizes = [[values[name].numel() * 4 for name in names] for names in (signature.user_inputs, signature.user_outputs)]
        return converter
    def convert_to_mlir(self):
        assert self.prepend_input_quantize_ops_indices == list(range(len(self.sizes[0])))
        return json.dumps(self.sizes)
""",
    "mtk_converter/python/__init__.py": "",
    "mtk_converter/python/converters/__init__.py": "",
    "mtk_converter/python/converters/pytorch/__init__.py": "",
    "mtk_converter/python/converters/pytorch/importer_v2.py": "def is_fx_node_supported(node): return True\n",
    "mtk_neuron.py": """
import json, struct
def compile(mlir, options):
    assert options.startswith("--relax-fp32 --opt=3 --platform-config=mt6991 --gno=LTS"), options
    inputs, outputs = json.loads(mlir)
    shared = "--dla-opt=0" in options
    words = [len(inputs), len(outputs), *inputs, *outputs, shared]
    return struct.pack(f"<{len(words)}I", *words)
def extract_shared_data(models, options):
    assert options == "-e union"
    return struct.pack("<16f", *[100.0] * 16), list(models)
""",
}
EXPORT = """
import sys
import torch
from executorch.backends.mediatek import NeuropilotPartitioner
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
class Add(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.full((1,), 100.0))
    def forward(self, x, y):
        return x + y + self.weights
def export(rows):
    example = (torch.ones(rows, 8), torch.ones(rows, 8))
    return torch.export.export(Add(), example, strict=True)
specs = [CompileSpec("platform-config", b"mt6991"), CompileSpec("gno", b"LTS"), CompileSpec("ImportForever", b"\\x01"),
         CompileSpec("ExtractSharedBlobKey", b"model_0")]
methods = {"4t32c_0": export(4), "1t32c_0": export(1)}
edge = to_edge(methods, compile_config=EdgeCompileConfig(_check_ir_validity=False))
edge = edge.to_backend({name: NeuropilotPartitioner(specs) for name in methods})
planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning, extract_delegate_segments=True))
open(sys.argv[1], "wb").write(program.buffer)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `.pte` with the methods 4t32c_0 and 1t32c_0: the sum of two inputs of [rows, 8] and of shared weights, all of them 100."""
    folder = tmp_path_factory.mktemp("mediatek")
    for name, text in STAND_INS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    path = folder / "model.pte"
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture
def on_device(
    native_build: Path, executor_runner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """`on_device(libraries, *arguments)` runs etcli_executor_runner where the libraries of that folder of native/neuron/tests are."""

    def run(libraries: str, *arguments: str | Path) -> Any:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(native_build / "neuron" / "tests" / libraries))
        return executor_runner(*arguments)

    return run


@pytest.mark.parametrize("libraries", ["whole", "plain"])
@pytest.mark.parametrize(("method", "rows"), [("4t32c_0", 4), ("1t32c_0", 1)])
def test_a_program_of_the_wheels_backend_runs(
    libraries: str, method: str, rows: int, program: Path, on_device: Callable[..., Any], tmp_path: Path
) -> None:
    x, y = [[float(n * k) for n in range(rows * 8)] for k in (1, 10)]
    for name, values in (("x", x), ("y", y)):
        (tmp_path / name).write_bytes(struct.pack(f"<{rows * 8}f", *values))
    inputs = ("--input", tmp_path / "x", "--input", tmp_path / "y")
    done = on_device(
        libraries, "--model", program, "--method", method, *inputs, "--iterations", "3", "--output-dir", tmp_path
    )
    assert done.status == 0, done.stderr
    assert struct.unpack(f"<{rows * 8}f", (tmp_path / "output_0.bin").read_bytes()) == tuple(
        a + b + 100 for a, b in zip(x, y, strict=True)
    )
    # Nothing is said where nothing is wrong.
    assert done.stderr == ""


def test_a_device_without_libraries_is_told_which(program: Path, on_device: Callable[..., Any]) -> None:
    done = on_device("none", "--model", program, "--method", "1t32c_0")
    assert done.status == 3
    error = done.one("error")
    assert error["code"] == "runner.load"
    for name in ("libneuronusdk_adapter.mtk.so", "libneuron_adapter_mgvi.so", "libneuron_adapter.so"):
        assert name in error["message"]


def test_an_adapter_that_lacks_functions_is_told_which(program: Path, on_device: Callable[..., Any]) -> None:
    done = on_device("lacking", "--model", program, "--method", "1t32c_0")
    assert (done.status, done.one("error")["code"]) == (3, "runner.load")
    assert "NeuronCompilation_setPriority, NeuronExecution_setOutput" in done.one("error")["message"]


@pytest.mark.parametrize(
    ("function", "status", "code"),
    [
        ("NeuronCompilation_finish", 3, "runner.load"),
        ("NeuronExecution_setOutputFromMemory", 5, "runner.execute"),
        ("NeuronExecution_compute", 5, "runner.execute"),
    ],
)
def test_a_failure_on_the_npu_reaches_the_user(
    function: str,
    status: int,
    code: str,
    program: Path,
    on_device: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_FAIL", function)
    done = on_device("whole", "--model", program, "--method", "1t32c_0")
    assert (done.status, done.one("error")["code"]) == (status, code)
    message = done.one("error")["message"]
    assert "method '1t32c_0' on the NPU: " + function in message
    assert "failed with NEURON_OP_FAILED (5)" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((2, 2, 1, 0), "of version 2, this delegate reads version 1"),
        ((1, 2, 1, 1), "the program holds"),
        ((1, 2, 0, 0), "2 inputs and 0 outputs"),
    ],
)
def test_a_damaged_header_is_refused(
    change: tuple[int, int, int, int], words: str, program: Path, on_device: Callable[..., Any], tmp_path: Path
) -> None:
    version, inputs, outputs, more = change
    content = program.read_bytes()
    size = 4 * 6
    header = struct.pack("<BIII", 1, 2, 1, size)
    assert content.count(header) == 2
    damaged = tmp_path / "damaged.pte"
    damaged.write_bytes(content.replace(header, struct.pack("<BIII", version, inputs, outputs, size + more)))
    done = on_device("whole", "--model", damaged, "--method", "1t32c_0")
    assert (done.status, done.one("error")["code"]) == (3, "runner.load")
    assert words in done.one("error")["message"]


def test_a_header_of_other_counts_is_refused_when_it_is_called(
    program: Path, on_device: Callable[..., Any], tmp_path: Path
) -> None:
    header, other = struct.pack("<BII", 1, 2, 1), struct.pack("<BII", 1, 1, 1)
    content = program.read_bytes()
    (tmp_path / "other.pte").write_bytes(content.replace(header, other))
    done = on_device("whole", "--model", tmp_path / "other.pte", "--method", "1t32c_0")
    assert (done.status, done.one("error")["code"]) == (5, "runner.execute")
    assert "1 inputs and 1 outputs, the program calls it with 3 tensors" in done.one("error")["message"]


def test_weights_that_are_not_in_the_program_are_named(
    program: Path, on_device: Callable[..., Any], tmp_path: Path
) -> None:
    content = program.read_bytes()
    # The key stands in the compile specs of both methods and in the named data; another one anywhere leaves some method without weights.
    parts = content.split(b"model_0")
    assert len(parts) == 4
    for changed in range(3):
        keys = [b"model_1" if place == changed else b"model_0" for place in range(3)]
        absent = tmp_path / "absent.pte"
        absent.write_bytes(b"".join(part + key for part, key in zip(parts, [*keys, b""], strict=True)))
        runs = [on_device("whole", "--model", absent, "--method", method) for method in ("4t32c_0", "1t32c_0")]
        failed = [done for done in runs if done.status]
        assert failed
        for done in failed:
            assert (done.status, done.one("error")["code"]) == (3, "runner.load")
            assert "the shared weights 'model_" in done.one("error")["message"]
