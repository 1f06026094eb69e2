"""What an export will need: memory of each worker and space on the disk, from shapes alone.

The figures of a worker without weights, and of a graph, were measured with executorch 1.5.1 (benchmarks/export_memory.py); the others
follow from what is held at once.
"""

from __future__ import annotations

from collections.abc import Collection

from etcli.common.memory import available_bytes
from etcli.export.inputs import TABLES
from etcli.export.plan import ChunkPlan, ExportPlan, ProgramPlan
from etcli.manifests.bundle import Shape
from etcli.manifests.model import ModelConfig

BASE_BYTES = 320 << 20
"""A worker with torch and the runtime, before it reads a weight."""

EXPORTER_BYTES = 440 << 20
"""One with ExecuTorch's exporter."""

TORCHAO_BYTES = 100 << 20
"""What quantising adds to either."""

EMBEDDING_BLOCK_BYTES = 1 << 24
"""Rows of the embedding that are in memory at a time, in float32."""

GRAPH_BYTES = 10 << 20
"""The graph of one layer in one method, all its copies together."""

GRAPH_FILE_BYTES = 24 << 10
"""The graph of one layer in one method as a program holds it."""

QUANTISED_GRAPH_BYTES = 300 << 10
"""A layer of a quantised graph as its file holds it, beside the weights: its nodes as JSON, and scales."""

QUANTISING_COPIES = 4
COMPILING_COPIES = 7
"""Copies of a chunk's float32 weights that a worker of backend neuron holds at most, beside what every lowering holds, while it quantises the graph
and while it compiles it. Measured on chunks of 94 and 128 MB (hidden 1024, A16W8, two methods, executorch 1.5.1): 3.2 and 3.0 copies (peaks of 957
and 1082 MB), and 4.8 and 5.9 (1108 and 1458 MB). The compiler was the simulated one; what MediaTek's takes is not known."""

_FLOAT32 = 4
_EXACT = frozenset(("fp32", "aqlm"))


def lowering_bytes(plan: ExportPlan, chunk: ChunkPlan, program: ProgramPlan, config: ModelConfig) -> int:
    """A worker that lowers: the weights, two copies of one tensor at a time, and the graphs of all methods.

    For the NPU it converts and compiles all methods together, each with copies of the weights.
    """
    return _lowering(plan, chunk, program, config, COMPILING_COPIES if plan.backend == "neuron" else 1)


def quantising_bytes(plan: ExportPlan, chunk: ChunkPlan, config: ModelConfig) -> int:
    """A worker that quantises a chunk's graph for the NPU: it traces it, and runs it on the calibration's calls."""
    return max(_lowering(plan, chunk, program, config, QUANTISING_COPIES) for program in chunk.programs)


def _lowering(plan: ExportPlan, chunk: ChunkPlan, program: ProgramPlan, config: ModelConfig, copies: int) -> int:
    graphs = GRAPH_BYTES * chunk.layers * len(program.methods)
    calls = max(_call_bytes(chunk, method.shape, config) for method in program.methods)
    return (
        EXPORTER_BYTES
        + _quantising(plan, chunk)
        + graphs
        + calls
        + copies * chunk.weights_bytes
        + 2 * chunk.largest_bytes
    )


def making_bytes(plan: ExportPlan, chunk: ChunkPlan, program: ProgramPlan, config: ModelConfig) -> int:
    """A worker that puts weights into a template and runs the program.

    It holds the weights with what is stored of them, then the mapped file and the weights that the runtime has packed.
    """
    calls = sum(_call_bytes(chunk, method.shape, config) for method in program.methods)
    return (
        BASE_BYTES
        + _quantising(plan, chunk)
        + calls
        + chunk.weights_bytes
        + chunk.stored_bytes
        + 2 * chunk.largest_bytes
    )


def calibration_bytes(plan: ExportPlan, config: ModelConfig) -> int:
    """A worker that runs the float network on prompts: all weights where they take at most half of the memory, one chunk at a time afterwards."""
    chunk = max(chunk.weights_bytes for chunk in plan.chunks)
    embedding = 0 if config.tied_embeddings else _FLOAT32 * config.vocab_size * config.hidden_size
    network = sum(chunk.weights_bytes for chunk in plan.chunks) + embedding
    held = network if plan.npu is not None and plan.npu.response_cap and 2 * network <= available_bytes() else 0
    calls = max(_call_bytes(chunk, shape, config) for chunk in plan.chunks for shape in plan.shapes)
    return BASE_BYTES + calls + max(held, chunk)


def tables_bytes(plan: ExportPlan, config: ModelConfig) -> int:
    """A worker that writes the tables: blocks of the embedding and what quantising makes of one, the whole rope table and its angles."""
    quantising = TORCHAO_BYTES if plan.embedding.group_size is not None else 0
    block = max(EMBEDDING_BLOCK_BYTES, _FLOAT32 * config.hidden_size)
    return BASE_BYTES + quantising + 8 * block + 3 * plan.rope_bytes


def program_bytes(chunk: ChunkPlan, program: ProgramPlan) -> int:
    """A program's file: the weights as stored, and the graphs of its methods."""
    return chunk.stored_bytes + GRAPH_FILE_BYTES * chunk.layers * len(program.methods)


def disk_bytes(plan: ExportPlan, missing: Collection[str], lowered: Collection[str]) -> int:
    """Space for the pieces `missing` (program files, or `tables`), each of which is a file of its own.

    While one of `lowered` is lowered, its weights are on the disk once more, and the whole of it once more under other names. For the NPU a chunk's
    quantised graph stands beside its programs.
    """
    sizes = {program.file: program_bytes(chunk, program) for chunk in plan.chunks for program in chunk.programs}
    tables = plan.embedding_bytes + plan.rope_bytes if TABLES in missing else 0
    graphs = sum(
        chunk.stored_bytes + chunk.layers * QUANTISED_GRAPH_BYTES
        for chunk in plan.chunks
        if plan.backend == "neuron" and any(program.file in missing for program in chunk.programs)
    )
    return (
        sum(size * (3 if file in lowered else 1) for file, size in sizes.items() if file in missing) + tables + graphs
    )


def _quantising(plan: ExportPlan, chunk: ChunkPlan) -> int:
    precisions = {plan.precision.precision, *([plan.precision.head] if chunk.head else [])}
    return TORCHAO_BYTES if precisions - _EXACT else 0


def _call_bytes(chunk: ChunkPlan, shape: Shape, config: ModelConfig) -> int:
    """Inputs, outputs and the largest intermediate values of one call, as eager PyTorch and the runtime each hold them."""
    tokens, columns = shape.tokens, shape.cache + shape.tokens
    caches = 2 * chunk.layers * config.num_kv_heads * shape.cache * config.head_dim
    scores = 3 * config.num_heads * tokens * columns
    hidden = tokens * (4 * config.hidden_size + 3 * config.intermediate_size)
    logits = tokens * config.vocab_size if chunk.head else 0
    return 2 * _FLOAT32 * (2 * caches + scores + hidden + logits + tokens * columns)
