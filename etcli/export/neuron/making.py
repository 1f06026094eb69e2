"""One program of a chunk for the NPU: its quantised graph compiled, and run where the NPU is simulated. Runs in a worker."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.export.backends.neuron import DELEGATE
from etcli.export.job import PROGRAM, QUANTISED, ChunkWork, Job
from etcli.export.lean import lean_lowering
from etcli.export.measure import Steps, write_outcome
from etcli.export.neuron.compiling import compiled
from etcli.export.neuron.graph_file import load_graph
from etcli.export.neuron.quantising import MOVING
from etcli.export.neuron.records import Records, inputs_of, record_file
from etcli.export.neuron.sdk import sdk
from etcli.export.neuron.simulated_run import run_methods
from etcli.export.samples import sample_inputs
from etcli.export.verification import (
    Expected,
    Tensors,
    allowance,
    check_tensors,
    compare_outputs,
    delegate_calls,
    nudged,
)
from etcli.manifests.model import ModelConfig


@torch.inference_mode(False)
@torch.no_grad()
def make_compiled_chunk(job: Job, work: ChunkWork, folder: Path) -> None:
    """Write `chunk.pte` and `outcome.json` into `folder`.

    Raises:
        ExportError: `neuron.graph_file` and `neuron.compiler_failed`; `export.contract` and `export.differs` as in `verification`.
        ToolError: as `sdk`.
    """
    npu, quantised = work.npu, work.quantised
    assert npu is not None and quantised is not None  # noqa: S101, PT018 - only a work for the NPU comes here
    torch.set_num_threads(job.threads)
    config = open_checkpoint(Path(job.checkpoint), job.adapter_path).config
    steps = Steps()
    path = folder / PROGRAM
    with sdk(simulated=npu.simulated):
        with steps.step("read"):
            graph = load_graph(Path(quantised) / QUANTISED)
            weights_bytes = sum(tensor.nbytes for tensor in graph.state_dict().values())
        with steps.step("eager"):
            calls = _calls(config, work, graph)
            expected = _expected(graph, calls) if work.verify and npu.simulated else {}
        with steps.step("trace"):
            programs = {name: torch.export.export(graph, inputs, strict=True) for name, inputs in calls.items()}
        with tempfile.TemporaryDirectory(prefix="weights-", dir=folder) as blobs:
            with steps.step("lower"), lean_lowering(Path(blobs)):
                manager = compiled(programs, work, f"chunk_{work.index}")
            with steps.step("write"), path.open("wb") as file:
                manager.write_to_file(file)
            del manager
    del programs
    with steps.step("verify"):
        facts, methods = check_tensors(path, work)
        errors = {
            name: compare_outputs(name, outputs, expected[name], allowance(work))
            for name, outputs in (run_methods(path, calls, folder) if expected else ())
        }
    write_outcome(
        folder,
        [path],
        steps,
        weights_bytes,
        made="lowered",
        program=facts.identifier,
        methods=methods,
        delegate_calls=delegate_calls(facts, methods, DELEGATE),
        errors=errors,
    )


def _calls(config: ModelConfig, work: ChunkWork, graph: torch.fx.GraphModule) -> dict[str, Tensors]:
    """A call of every method: one of the calibration's, so that activations are within their ranges, or else one of random numbers."""
    found = {
        method.name: sample_inputs(config, work.layers, method.shape, work.cache, seed=1000 * work.index + number)
        for number, method in enumerate(work.methods)
    }
    if work.records is None:
        return found
    records = Records(Path(work.records) / record_file(work.index))
    calls, cache = records.calls[0], work.methods[0].shape.cache
    names = {method.shape.tokens: method.name for method in work.methods}
    sizes = [call.tokens for call in calls]
    last = max((sizes.index(tokens) for tokens in names if tokens in sizes), default=-1)  # then every method has one
    steps = inputs_of(config, work.layers, cache, calls[: last + 1], lambda number: records.hidden(0, number), graph)
    for call, (inputs, _) in zip(calls, steps, strict=False):
        if call.tokens in names:
            found[names[call.tokens]] = tuple(tensor.contiguous() for tensor in inputs)
    return found


def _steps(graph: torch.fx.GraphModule) -> tuple[float, ...]:
    """Of each output the scale that its numbers are multiples of, which they keep where they are moved; the largest where several are joined."""
    (outputs,) = next(node for node in graph.graph.nodes if node.op == "output").args
    return tuple(_step(node) for node in outputs)


def _step(node: torch.fx.Node) -> float:
    while node.target in MOVING:
        node = node.all_input_nodes[0]
    if node.target is torch.ops.aten.cat.default:
        return max(_step(one) for one in node.args[0])  # type: ignore[arg-type, union-attr]
    scaled = node.target is torch.ops.quantized_decomposed.dequantize_per_tensor.default
    return float(node.args[1]) if scaled else 0.0  # type: ignore[arg-type]


def _expected(graph: torch.fx.GraphModule, calls: Mapping[str, Tensors]) -> dict[str, Expected]:
    steps = _steps(graph)
    return {
        name: Expected(tuple(tensor.contiguous() for tensor in graph(*inputs)), tuple(graph(*nudged(inputs))), steps)
        for name, inputs in calls.items()
    }
