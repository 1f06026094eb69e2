"""Chunks with AQLM weights as graphs: what XNNPACK takes between their operators, caches that are one memory on both sides, no cache that waits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aqlm_folders import write_aqlm_folder
from executorch.exir import ExecutorchProgramManager
from executorch.extension.pybindings.portable_lib import _load_program_from_buffer

from etcli.checkpoint.opening import open_checkpoint
from etcli.export.backends.registry import BACKENDS
from etcli.export.job import ChunkWork, NamedShape, PrecisionSettings
from etcli.export.lean import lean_lowering
from etcli.export.operators import fewest_calls
from etcli.export.quantizers.registry import quantise
from etcli.export.samples import sample_inputs
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_weights
from etcli.manifests.bundle import CacheKind, Shape
from etcli.ops.needed import load_needed

CACHE = 64
PROMPT, DECODE = Shape(tokens=4, cache=CACHE), Shape(tokens=1, cache=CACHE)
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def kept(*names: str, layers: tuple[int, ...] = (0, 1)) -> tuple[str, ...]:
    return tuple(f"model.layers.{layer}.{name}" for layer in layers for name in names)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def chunk_of(folder: Path, cache: CacheKind, layers: int, head: str | None, **options: Any) -> Chunk:
    """The last layers of a network of two, with or without its head."""
    write_aqlm_folder(folder, **options)
    checkpoint = open_checkpoint(folder)
    chunk = Chunk(checkpoint.config, 2 - layers, layers, head=head is not None, cache=cache).eval()
    load_weights(chunk, checkpoint)
    quantise(chunk, PrecisionSettings(precision="aqlm", head=head or "fp32", group_size=32))
    return chunk


def lowered(chunk: Chunk, *shapes: Shape, backend: str = "xnnpack") -> ExecutorchProgramManager:
    programs = {
        f"net_{shape}_0": torch.export.export(
            chunk, sample_inputs(chunk.config, len(chunk.layers), shape, chunk.cache, seed=0), strict=False
        )
        for shape in shapes
    }
    with tempfile.TemporaryDirectory() as folder, lean_lowering(Path(folder)):
        manager = BACKENDS[backend].lower(programs)
        assert manager.buffer  # kept by the manager, while the folder is there
    return manager


def calls_expected(chunk: Chunk) -> int:
    work = ChunkWork(
        index=0,
        first_layer=chunk.first_layer,
        layers=len(chunk.layers),
        head=chunk.lm_head is not None,
        methods=(NamedShape(name="net", shape=PROMPT),),
        backend="xnnpack",
        cache=chunk.cache,
        tolerance=0,
    )
    return fewest_calls(work, chunk.config)


@pytest.mark.parametrize(
    ("cache", "head", "options", "partitions"),
    [
        ("ring", None, {"codebooks": 1, "attention_bias": True, "mlp_bias": True}, 7),
        ("shift", "8da4w", {}, 9),
        ("ring", "8da4w", {}, 7),
        ("ring", "8da8w", {"family": "qwen3"}, 9),
        ("ring", None, {"kept": kept("mlp.down_proj", *ATTENTION)}, 5),
        ("ring", None, {"kept": kept("self_attn.q_proj", "self_attn.k_proj"), "family": "qwen3"}, 7),
        ("shift", None, {"kept": kept("self_attn.o_proj", "mlp.gate_proj", *ATTENTION, layers=(0,))}, 7),
    ],
    ids=str,
)
def test_xnnpack_takes_all_between_the_operators(
    tmp_path: Path, cache: CacheKind, head: str | None, options: dict[str, Any], partitions: int
) -> None:
    chunk = chunk_of(tmp_path / "m", cache, 2, head, **options)
    shape = PROMPT if head else DECODE
    (plan,) = lowered(chunk, shape).executorch_program.execution_plan
    assert len(plan.delegates) == partitions
    assert calls_expected(chunk) == partitions
    books = options.get("codebooks", 2)
    operators = {operator.name for operator in plan.operators}
    wanted = {f"aqlm::code{books}x8_lut_matmat"}
    if cache == "ring":
        wanted |= {"etcli::ring_attention"} | ({"etcli::last_row"} if head else set())
    assert operators == wanted
    assert {operator.overload for operator in plan.operators} == {"out"}


@pytest.mark.full
def test_six_layers_are_four_partitions_each_and_one(tmp_path: Path) -> None:
    """Codes and codebooks stand in the file once for both methods: it is little more than they are."""
    write_aqlm_folder(tmp_path / "m", num_hidden_layers=6, hidden_size=256, intermediate_size=512, head_dim=64)
    checkpoint = open_checkpoint(tmp_path / "m")
    chunk = Chunk(checkpoint.config, 0, 6, head=False, cache="shift").eval()
    load_weights(chunk, checkpoint)
    program = lowered(chunk, PROMPT, DECODE)
    for plan in program.executorch_program.execution_plan:
        assert len(plan.delegates) == 25
    weights = sum(parameter.nbytes for parameter in chunk.parameters())
    assert weights < len(program.buffer) < 1.5 * weights


@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_shifted_caches_are_written_in_place_and_none_waits_in_the_programs_own_memory(
    tmp_path: Path, backend: str
) -> None:
    """Each method four times, its cache outputs the same memory as its cache inputs, against eager with separate memory."""
    chunk = chunk_of(tmp_path / "m", "shift", 2, None)
    program = lowered(chunk, PROMPT, DECODE, backend=backend)
    one_cache = 2 * CACHE * 16 * 4
    if backend == "xnnpack":
        for plan in program.executorch_program.execution_plan:
            assert len(plan.delegates) == 9
            assert sum(plan.non_const_buffer_sizes) < one_cache * (1 if "_1t" in plan.name else 2)
    for name, parameter in chunk.named_parameters():
        if not name.endswith("norm.weight"):
            assert program.buffer.count(parameter.numpy().tobytes()) == 1, (
                f"{name} stands in the file once for both methods"
            )
    load_needed({"aqlm::code2x8_lut_matmat.out"})
    loaded = _load_program_from_buffer(program.buffer)
    for shape in (PROMPT, DECODE):
        method = loaded.load_method(f"net_{shape}_0")
        hidden, mask, rotary, *caches = sample_inputs(chunk.config, 2, shape, "shift", seed=1)
        ours: Any = list(caches)
        theirs: Any = list(caches)
        for step in range(4):
            hidden = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(step))
            expected, *theirs = chunk(hidden, mask, rotary, *theirs)
            method.set_inputs((hidden, mask, rotary, *ours))
            method.execute()
            # The method keeps its output storage, so from the second step on its own outputs are its inputs.
            actual, *outputs = method.get_outputs(False)
            assert [old.data_ptr() == new.data_ptr() for old, new in zip(ours, outputs, strict=True)] == [step > 0] * 4
            ours = outputs
            torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
            for mine, right in zip(ours, theirs, strict=True):
                torch.testing.assert_close(mine, right, atol=1e-4, rtol=1e-4)
