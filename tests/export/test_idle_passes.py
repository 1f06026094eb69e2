"""Passes of XNNPACK's compiler that are left out change nothing in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack._passes import XNNPACKPassManager

from etcli.export import lean
from etcli.export.job import ChunkWork, NamedShape, PrecisionSettings
from etcli.export.lowering import PROGRAM, write_program
from etcli.export.measure import Steps
from etcli.export.quantizers.registry import quantise
from etcli.llama.chunk import Chunk
from etcli.manifests.bundle import CacheKind, Shape
from etcli.manifests.model import ModelConfig, RopeConfig

CONFIG = ModelConfig(
    architecture="LlamaForCausalLM",
    hidden_size=64,
    intermediate_size=96,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=96,
    context_length=64,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=10000.0),
    tied_embeddings=False,
    attention_bias=True,
)
METHODS = tuple(NamedShape(name=f"net_{t}t16c_0", shape=Shape(tokens=t, cache=16)) for t in (4, 1))


@torch.no_grad()
def written(folder: Path, cache: CacheKind, precision: str) -> bytes:
    """A chunk of one random layer and head as a file."""
    settings = PrecisionSettings(precision=precision, group_size=32 if precision == "8da4w" else None, head=precision)
    chunk = Chunk(CONFIG, 0, 1, head=True, cache=cache).eval()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in list(chunk.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        values = torch.nn.Parameter(torch.randn(parameter.shape, generator=generator), requires_grad=False)
        setattr(chunk.get_submodule(owner), leaf, values)
    quantise(chunk, settings)
    work = ChunkWork.model_construct(
        layers=1, head=True, methods=METHODS, backend="xnnpack", cache=cache, precision=settings
    )
    folder.mkdir()
    write_program(chunk, work, folder, Steps())
    return (folder / PROGRAM).read_bytes()


@pytest.mark.parametrize(
    ("cache", "precision"), [("ring", "fp32"), ("ring", "8da4w"), ("shift", "fp32"), ("shift", "fp16")]
)
def test_idle_passes_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: CacheKind, precision: str
) -> None:
    kept: list[int] = []
    needed = lean._needed_passes

    def counted(*arguments):
        found = needed(*arguments)
        kept.append(len(found))
        return found

    monkeypatch.setattr(lean, "_needed_passes", counted)
    lean_bytes = written(tmp_path / "lean", cache, precision)
    monkeypatch.setattr(lean, "IDLE_WITHOUT", {})
    assert written(tmp_path / "plain", cache, precision) == lean_bytes
    calls = len(kept) // 2
    assert max(kept[:calls]) <= 10, "hardly any pass is left out"
    assert min(kept[calls:]) == 17


def test_every_pass_that_may_be_left_out_is_one_of_xnnpack_s() -> None:
    assert set(lean.IDLE_WITHOUT) <= {kind.__name__ for kind in XNNPACKPassManager(None).passes}
