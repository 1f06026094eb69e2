"""What a program gives is held against eager so closely that wrong weights are found, whatever the precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etcli.common.errors import ExportError
from etcli.export.job import ChunkWork, NamedShape, PrecisionSettings
from etcli.export.lowering import PROGRAM, write_program
from etcli.export.making import _inputs, _quantised
from etcli.export.measure import Steps
from etcli.export.quantizers.dynamic import put, rebuilt
from etcli.export.quantizers.registry import quantise
from etcli.export.verification import allowance, compare_methods
from etcli.llama.chunk import Chunk
from etcli.manifests.bundle import Shape
from etcli.manifests.model import ModelConfig, RopeConfig

CONFIG = ModelConfig(
    architecture="llama",
    hidden_size=96,
    intermediate_size=96,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=128,
    context_length=64,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=1e4),
    tied_embeddings=True,
)
SHAPES = (Shape(tokens=8, cache=32), Shape(tokens=1, cache=32))
SETTINGS = PrecisionSettings(precision="8da4w", group_size=32, head="8da8w")


def work(head: bool) -> ChunkWork:
    return ChunkWork(
        index=0,
        first_layer=0,
        layers=2,
        head=head,
        methods=tuple(NamedShape(name=f"net_{shape}_0", shape=shape) for shape in SHAPES),
        backend="xnnpack",
        cache="shift",
        precision=SETTINGS,
        tolerance=1e-4,
    )


def network(head: bool) -> Chunk:
    """Two layers with float32 weights of the size that trained networks have."""
    generator = torch.Generator().manual_seed(1)
    chunk = Chunk(CONFIG, 0, 2, head=head).eval()
    for name, parameter in list(chunk.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        values = torch.randn(parameter.shape, generator=generator) * 0.05 + ("norm" in name)
        setattr(chunk.get_submodule(owner), leaf, nn.Parameter(values, requires_grad=False))
    return chunk


def nothing(_chunk: Chunk) -> None:
    pass


def linears_swapped(chunk: Chunk) -> None:
    first, second = (chunk.layers[layer].mlp.down_proj for layer in (0, 1))
    first.weight, second.weight = second.weight, first.weight


def gate_and_up_swapped(chunk: Chunk) -> None:
    linear = chunk.layers[1].mlp.gate_up_proj
    parts: Any = linear.weight
    half = parts.qdata.shape[0] // 2
    turned = {name: getattr(parts, name).roll(half, dims=0) for name in ("qdata", "scale", "zero_point")}
    put(linear, rebuilt(parts, **turned))


def scales(factor: float, *, row: int | None = None) -> Callable[[Chunk], None]:
    """Scales of one linear multiplied: all, or those of one row."""

    def change(chunk: Chunk) -> None:
        linear = chunk.layers[1].self_attn.o_proj
        parts: Any = linear.weight
        wrong = parts.scale.clone()
        wrong[slice(row, None if row is None else row + 1)] *= factor
        put(linear, rebuilt(parts, scale=wrong))

    return change


def scales_of_another_group(chunk: Chunk) -> None:
    linear = chunk.layers[0].mlp.down_proj
    parts: Any = linear.weight
    put(linear, rebuilt(parts, scale=parts.scale.roll(1, dims=1)))


def one_code_wrong_in_a_row_of_the_head(chunk: Chunk) -> None:
    parts: Any = chunk.lm_head.weight
    wrong = parts.qdata.clone()
    wrong[5] = -wrong[5]
    put(chunk.lm_head, rebuilt(parts, qdata=wrong))


@torch.no_grad()
def verified(folder: Path, change: Callable[[Chunk], None], *, head: bool) -> dict[str, float]:
    """Lower a network that `change` has made wrong, and hold it against the right one."""
    right, wrong = network(head), network(head)
    asked = work(head)
    _, expected = _quantised(right, asked)
    quantise(wrong, SETTINGS)
    change(wrong)
    write_program(wrong, asked, folder, Steps())
    inputs = {method.name: _inputs(CONFIG, asked, number) for number, method in enumerate(asked.methods)}
    return compare_methods(folder / PROGRAM, asked, inputs, expected)


@pytest.mark.parametrize("head", [False, True])
def test_right_weights_pass(tmp_path: Path, head: bool) -> None:
    errors = verified(tmp_path, nothing, head=head)
    assert errors.keys() == {method.name for method in work(head).methods}


@pytest.mark.parametrize(
    "change",
    [
        linears_swapped,
        gate_and_up_swapped,
        scales_of_another_group,
        scales(1.5),
        scales(0.5),
        scales(3, row=7),
        one_code_wrong_in_a_row_of_the_head,
    ],
)
def test_wrong_weights_are_found_in_spite_of_rounding(tmp_path: Path, change: Callable[[Chunk], None]) -> None:
    head = change is one_code_wrong_in_a_row_of_the_head
    with pytest.raises(ExportError, match="differs from eager PyTorch by") as caught:
        verified(tmp_path, change, head=head)
    assert caught.value.problems[0].code == "export.differs"


@pytest.mark.parametrize(("layers", "times"), [(1, 1.0), (6, 1.0), (30, 5.0)])
def test_a_deep_chunk_may_differ_by_what_its_layers_add_up_to(layers: int, times: float) -> None:
    """The default model as one chunk of 30 layers differs by 1.02e-4 of the largest value."""
    work = ChunkWork.model_construct(layers=layers, tolerance=1e-4)
    assert allowance(work) == pytest.approx(times * 1e-4)
