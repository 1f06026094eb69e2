"""A program with AQLM weights is held against eager closely enough that a single wrong code is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from aqlm_folders import write_aqlm_folder
from torch import nn

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ExportError
from etcli.export.job import ChunkWork, NamedShape, PrecisionSettings
from etcli.export.lowering import PROGRAM, write_program
from etcli.export.making import _inputs, _quantised
from etcli.export.measure import Steps
from etcli.export.verification import compare_methods
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_weights
from etcli.manifests.bundle import Shape


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def work(head: str | None) -> ChunkWork:
    return ChunkWork(
        index=0,
        first_layer=1,
        layers=1,
        head=head is not None,
        methods=(NamedShape(name="net_4t16c_0", shape=Shape(tokens=4, cache=16)),),
        backend="portable",
        cache="shift",
        precision=PrecisionSettings(precision="aqlm", head=head or "8da8w"),
        tolerance=1e-4,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("verified") / "m"
    write_aqlm_folder(made)
    return made


def network(folder: Path, *, head: bool = False) -> Chunk:
    checkpoint = open_checkpoint(folder)
    chunk = Chunk(checkpoint.config, 1, 1, head=head).eval()
    load_weights(chunk, checkpoint)
    return chunk


def nothing(_chunk: Chunk) -> None:
    pass


def one_code_wrong(chunk: Chunk) -> None:
    chunk.layers[0].mlp.down_proj.codes[5, 17, 1] ^= 1


def codebooks_exchanged(chunk: Chunk) -> None:
    linear = chunk.layers[0].self_attn.k_proj
    linear.codebooks = nn.Parameter(linear.codebooks.flip(0), requires_grad=False)


def codes_taken_for_unsigned(chunk: Chunk) -> None:
    """As if a negative code counted from the start of the codebook."""
    linear = chunk.layers[0].mlp.gate_proj
    linear.codes = nn.Parameter(linear.codes.clamp(min=0), requires_grad=False)


def one_scale_wrong(chunk: Chunk) -> None:
    chunk.layers[0].self_attn.o_proj.scales[9] *= 1.01


def gate_and_up_exchanged(chunk: Chunk) -> None:
    network = chunk.layers[0].mlp
    network.gate_proj, network.up_proj = network.up_proj, network.gate_proj


@pytest.mark.parametrize(
    "change",
    [
        nothing,
        one_code_wrong,
        codebooks_exchanged,
        codes_taken_for_unsigned,
        one_scale_wrong,
        gate_and_up_exchanged,
    ],
)
def test_what_is_wrong_is_found(folder: Path, tmp_path: Path, change: Callable[[Chunk], None]) -> None:
    right, wrong, asked = network(folder), network(folder), work(None)
    errors, expected = _quantised(right, asked)
    assert errors == {}, "nothing was quantised"
    change(wrong)
    write_program(wrong, asked, tmp_path, Steps())
    inputs = {method.name: _inputs(wrong.config, asked, number) for number, method in enumerate(asked.methods)}
    if change is nothing:
        assert max(compare_methods(tmp_path / PROGRAM, asked, inputs, expected).values()) < 1e-5
        return
    with pytest.raises(ExportError) as caught:
        compare_methods(tmp_path / PROGRAM, asked, inputs, expected)
    assert caught.value.problems[0].code == "export.differs"


@pytest.mark.parametrize("head", [None, "fp32", "8da8w"])
def test_rounding_is_allowed_for_where_the_head_rounds_alone(folder: Path, head: str | None) -> None:
    errors, expected = _quantised(network(folder, head=head is not None), work(head))
    rounds = head == "8da8w"
    assert all((found.nudged is not None) == rounds for found in expected.values())
    assert bool(errors) == rounds
