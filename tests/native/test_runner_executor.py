"""etcli_executor_runner runs any program: planned or unplanned inputs and outputs, ones or files in, files out."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass


class Mixed(torch.nn.Module):
    """Several types in and out, one input passed on as it is, one constant."""

    def forward(self, x: torch.Tensor, n: torch.Tensor, flag: torch.Tensor, factor: int):
        return x * factor + n, n, flag.logical_not(), torch.arange(3)


def write_program(path: Path, module: torch.nn.Module, examples: tuple, *, planned: bool) -> Path:
    plan = MemoryPlanningPass(alloc_graph_input=planned, alloc_graph_output=planned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        edge = to_edge(torch.export.export(module, examples))
        path.write_bytes(edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan)).buffer)
    return path


@pytest.fixture(params=[True, False], ids=["planned", "unplanned"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    examples = (torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), torch.zeros(2, dtype=torch.bool), 5)
    return write_program(tmp_path / "mixed.pte", Mixed(), examples, planned=request.param)


def test_ones_by_default(executor_runner, mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = executor_runner("--model", mixed, "--output-dir", out, "--iterations", "3")
    assert run.status == 0, run.stderr
    assert [event["event"] for event in run.events] == [
        "start",
        "loaded",
        "output",
        "output",
        "output",
        "output",
        "stats",
    ]
    loaded = run.one("loaded")
    assert loaded["method"] == "forward"
    kinds = [(entry["kind"], entry.get("dtype"), entry.get("shape")) for entry in loaded["inputs"]]
    assert kinds == [
        *(("tensor", "float32", [2, 3]), ("tensor", "int64", [3]), ("tensor", "bool", [2]), ("int", None, None)),
    ]
    first = next(event for event in run.events if event["event"] == "output")
    assert (first["dtype"], first["shape"], first["bytes"]) == ("float32", [2, 3], 24)
    assert numpy.fromfile(out / "output_0.bin", "float32").tolist() == [6.0] * 6
    assert numpy.fromfile(out / "output_1.bin", "int64").tolist() == [1, 1, 1]
    assert numpy.fromfile(out / "output_2.bin", "bool").tolist() == [False, False]
    assert numpy.fromfile(out / "output_3.bin", "int64").tolist() == [0, 1, 2]
    stats = run.one("stats")
    assert stats["iterations"] == 3
    assert 0 < stats["min_s"] <= stats["median_s"] <= stats["max_s"]
    assert stats["min_s"] <= stats["mean_s"] <= stats["max_s"]


def test_inputs_from_files(executor_runner, mixed: Path, tmp_path: Path) -> None:
    x = numpy.arange(6, dtype="float32").reshape(2, 3)
    n = numpy.array([10, 20, 30], dtype="int64")
    flag = numpy.array([True, False])
    files = []
    for name, array in (("x", x), ("n", n), ("flag", flag)):
        array.tofile(tmp_path / name)
        files += ["--input", tmp_path / name]
    # run twice: a planned input's memory may be reused by the program and has to be filled again
    run = executor_runner("--model", mixed, *files, "--output-dir", tmp_path, "--iterations", "2", "--threads", "1")
    assert run.status == 0, run.stderr
    assert numpy.fromfile(tmp_path / "output_0.bin", "float32").tolist() == (x * 5 + n).flatten().tolist()
    assert numpy.fromfile(tmp_path / "output_1.bin", "int64").tolist() == n.tolist()
    assert numpy.fromfile(tmp_path / "output_2.bin", "bool").tolist() == [False, True]


def test_a_chunk_of_a_bundle(executor_runner, tiny_bundle, tmp_path: Path) -> None:
    """The same program that the Llama runner takes, by the name of one of its methods, through a delegate."""
    program = tiny_bundle().folder / "chunks" / "tiny_2.pte"
    run = executor_runner("--model", program, "--method", "tiny_3t24c_2", "--output-dir", tmp_path)
    assert run.status == 0, run.stderr
    assert numpy.isfinite(numpy.fromfile(tmp_path / "output_0.bin", "float32")).all()
    assert (tmp_path / "output_0.bin").stat().st_size == 3 * 160 * 4
    assert len([event for event in run.events if event["event"] == "output"]) == 3


def refused(run, status: int, code: str, *parts: str) -> None:
    assert run.status == status, (run.events, run.stderr)
    assert run.events[-1]["event"] == "error"
    assert run.one("error")["code"] == code
    for part in parts:
        assert part in run.one("error")["message"]


def test_what_does_not_fit_is_refused(executor_runner, mixed: Path, tiny_bundle, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"\0" * 23)
    ok = tmp_path / "ok"
    ok.write_bytes(b"\0" * 24)
    program = tiny_bundle().folder / "chunks" / "tiny_0.pte"
    refused(executor_runner(), 2, "runner.usage", "--model is needed")
    refused(executor_runner("--model", mixed, "--iterations", "0"), 2, "runner.usage", "--iterations")
    refused(executor_runner("--model", mixed, "--input", ok), 2, "runner.usage", "given 1 times", "has 3 tensor inputs")
    run = executor_runner("--model", mixed, "--input", short, "--input", ok, "--input", ok)
    refused(run, 4, "runner.tensor", "short has 23 bytes", "input 0 is float32 [2, 3], 24 bytes")
    refused(executor_runner("--model", tmp_path / "none.pte"), 3, "runner.file", "none.pte", "No such file")
    refused(executor_runner("--model", short), 3, "runner.load", "short (23 bytes) is not a whole ExecuTorch program")
    refused(executor_runner("--model", mixed, "--method", "backward"), 3, "runner.method", "it has 'forward'")
    refused(executor_runner("--model", program), 2, "runner.usage", "several methods", "tiny_1t24c_0, tiny_3t24c_0")
    refused(executor_runner("--model", mixed, "--output-dir", ok), 3, "runner.file", "cannot make the folder")


def test_a_missing_operator_is_named(executor_runner, tmp_path: Path) -> None:
    """An operator that the program does not have is an error of loading which names the operator, not of the run."""

    class Quantized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.quantized_decomposed.quantize_per_tensor.default(x, 0.5, 0, -128, 127, torch.int8)

    import executorch.kernels.quantized  # noqa: F401 - registers the out variant
    from executorch.exir import EdgeCompileConfig

    exported = torch.export.export(Quantized(), (torch.zeros(4),))
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    path = tmp_path / "quantized.pte"
    path.write_bytes(edge.to_executorch().buffer)
    refused(
        executor_runner("--model", path), 3, "runner.load", "quantize_per_tensor", "OperatorMissing", "build.custom_ops"
    )
