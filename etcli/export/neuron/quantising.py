"""A chunk's graph, quantised by ExecuTorch's quantiser for MediaTek's NPU. Runs in a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from etcli.export.job import QUANTISED, Job, QuantiseWork
from etcli.export.lowering import load_chunk
from etcli.export.measure import Steps, write_outcome
from etcli.export.neuron.graph_file import save_graph
from etcli.export.neuron.records import Records, inputs_of, record_file
from etcli.export.neuron.sdk import sdk
from etcli.export.samples import sample_inputs
from etcli.llama.chunk import Chunk
from etcli.llama.norm import use_means

MOVING = (
    torch.ops.aten.slice.Tensor,
    torch.ops.aten.view.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten.transpose.int,
)
"""Operators that leave numbers as they are."""


@torch.inference_mode(False)
@torch.no_grad()
def quantise_chunk(job: Job, work: QuantiseWork, folder: Path) -> None:
    """Write `chunk.pt2` and `outcome.json` into `folder`.

    Raises:
        CheckpointError: the weights cannot be read.
        ToolError: as `sdk`.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    with steps.step("read"):
        chunk = load_chunk(job, work)
        use_means(chunk)
        weights_bytes = sum(parameter.nbytes for parameter in chunk.parameters())
    with sdk(simulated=work.npu.simulated):
        graph = _quantised(chunk, work, Records(Path(work.records) / record_file(work.index)), steps)
    path = folder / QUANTISED
    with steps.step("write"):
        save_graph(graph, path)
    write_outcome(folder, [path], steps, weights_bytes)


def _quantised(chunk: Chunk, work: QuantiseWork, records: Records, steps: Steps) -> torch.export.ExportedProgram:
    """The chunk's graph of any number of tokens up to the cache's, with activations' ranges measured on `records`.

    Weights stay float32 with their rounding in the graph (`fold_quantize=False`), which is how MediaTek's converter takes them.
    """
    from executorch.backends.mediatek.quantizer import NeuropilotQuantizer, Precision
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config, cache = chunk.config, work.methods[0].shape.cache
    prompts = [
        (calls, lambda number, prompt=prompt: records.hidden(prompt, number))
        for prompt, calls in enumerate(records.calls)
    ]
    with steps.step("trace"):
        example = _example(chunk, work)
        exported = torch.export.export(chunk, example, strict=True, dynamic_shapes=_dynamic(work, cache, named=True))
        quantizer = NeuropilotQuantizer()
        quantizer.setup_precision(Precision[work.precision.precision])
        prepared = prepare_pt2e(exported.module(), quantizer)
    with steps.step("measure"):
        for calls, hidden in prompts:
            for _ in inputs_of(config, work.layers, cache, calls, hidden, prepared):
                pass
        _give_caches_the_range_of_what_joins_them(prepared)
        converted = convert_pt2e(prepared, fold_quantize=False)
        return torch.export.export(converted, example, strict=True, dynamic_shapes=_dynamic(work, cache, named=False))


def _give_caches_the_range_of_what_joins_them(prepared: Any) -> None:
    """A cache and the rows that are put to its end get one range, that of both.

    A row is rounded when it is made, and again when it comes back in a cache. With two ranges, the second of which lacks each prompt's last rows, it would
    be another number the second time, or be cut off, so that an answer would depend on how its tokens were cut into calls.
    """
    for node in prepared.graph.nodes:
        if node.target is not torch.ops.aten.cat.default:
            continue
        parts = [_observed(part) for part in node.args[0]]
        if not any(part.args[0].op == "placeholder" for part in parts if part.op == "call_module"):
            continue
        observers = [prepared.get_submodule(part.target) for part in parts if part.op == "call_module"]
        low = torch.stack([observer.min_val for observer in observers]).amin(0)
        high = torch.stack([observer.max_val for observer in observers]).amax(0)
        for observer in observers:
            observer.min_val.copy_(low)
            observer.max_val.copy_(high)


def _observed(node: Any) -> Any:
    """The observer of a node's numbers, which may be in front of what moves them about."""
    while node.target in MOVING:
        node = node.args[0]
    return node


def _example(chunk: Chunk, work: QuantiseWork) -> tuple[torch.Tensor, ...]:
    longest = max((method.shape for method in work.methods), key=lambda shape: shape.tokens)
    return sample_inputs(chunk.config, work.layers, longest, work.cache, seed=0)


def _dynamic(work: QuantiseWork, cache: int, *, named: bool) -> Any:
    """What of a chunk's inputs depends on the number of tokens; `named` as the chunk takes them, caches together."""
    tokens = torch.export.Dim("T", min=1, max=cache)
    changing: list[Any] = [{1: tokens}, {2: tokens, 3: tokens + cache}, {2: tokens}]
    caches = (None,) * (2 * work.layers)
    if named:
        return dict(zip(("hidden", "place", "rotary", "caches"), (*changing, caches), strict=True))
    return (*changing, *caches)
