"""Quantised linears: their codes and scales, their products, and the bytes in the file, each against arithmetic of this test's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from torch import nn

from etcli.common.errors import ExportError
from etcli.export.backends.registry import BACKENDS
from etcli.export.backends.xnnpack import Xnnpack
from etcli.export.job import PrecisionSettings
from etcli.export.quantizers.base import StoredBlob
from etcli.export.quantizers.registry import QUANTIZERS, half_weights, quantise, rounds_activations, stored_blobs
from etcli.export.samples import sample_inputs
from etcli.export.verification import Expected, compare_outputs, nudged
from etcli.llama.chunk import Chunk
from etcli.manifests.bundle import CacheKind, Shape
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.pte.read import read_program

INPUTS, OUTPUTS = 192, 48


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def linear(*, bias: bool = False, seed: int = 0) -> nn.Linear:
    generator = torch.Generator().manual_seed(seed)
    made = nn.Linear(INPUTS, OUTPUTS, bias=bias).requires_grad_(False)
    made.weight.copy_(torch.randn(OUTPUTS, INPUTS, generator=generator) * 0.1)
    made.weight[0, :32] = 0  # a group without a largest value
    made.weight[1, 5] = 4.0  # an outlier
    if bias:
        made.bias.copy_(torch.randn(OUTPUTS, generator=generator))
    return made


def parts(name: str, layer: nn.Linear) -> dict[str, np.ndarray]:
    return {part: tensor.contiguous() for part, tensor in QUANTIZERS[name].blobs(layer.weight)}


def dequantised(name: str, layer: nn.Linear) -> np.ndarray:
    """The weight in float64, decoded from the stored bytes alone."""
    found = {
        part: tensor.contiguous().view(torch.uint8).numpy() for part, tensor in QUANTIZERS[name].blobs(layer.weight)
    }
    if name == "fp16":
        return found["data"].view(np.float16).astype(np.float64).reshape(OUTPUTS, INPUTS)
    if name == "8da8w":
        scales = found["scale"].view(np.float32).astype(np.float64)
        return found["data"].view(np.int8).reshape(OUTPUTS, INPUTS) * scales[:, None]
    low, high = found["data"] & 15, found["data"] >> 4
    codes = np.stack([low, high], axis=-1).reshape(OUTPUTS, INPUTS).astype(np.float64) - 8
    # bfloat16 is the upper half of a float32
    halves = found["scale"].view(np.uint16).astype(np.uint32) << 16
    scales = halves.view(np.float32).astype(np.float64).reshape(OUTPUTS, -1)
    return codes * np.repeat(scales, INPUTS // scales.shape[1], axis=1)


def activations(x: np.ndarray) -> np.ndarray:
    """What 8 bits with a scale and a zero point for each token leave of `x`."""
    low, high = np.minimum(x.min(axis=-1, keepdims=True), 0), np.maximum(x.max(axis=-1, keepdims=True), 0)
    scale = (high - low) / 255
    zero = np.clip(-128 - np.round(low / scale), -128, 127)
    return (np.clip(np.round(x / scale) + zero, -128, 127) - zero) * scale


@pytest.mark.parametrize(
    ("name", "group", "bias", "lowered"),
    [
        ("8da4w", 32, True, True),
        ("8da4w", 64, False, False),
        ("8da4w", 96, False, True),
        ("8da4w", 192, True, False),
        ("8da8w", None, True, True),
        ("fp16", None, True, True),
    ],
)
def test_products_are_those_of_the_stored_weight(
    name: str, group: int | None, bias: bool, lowered: bool, tmp_path: Path
) -> None:
    layer = linear(bias=bias)
    float_weight = layer.weight.double().numpy().copy()
    QUANTIZERS[name].quantise(layer, group)
    weight = dequantised(name, layer)
    x = torch.randn(1, 5, INPUTS, generator=torch.Generator().manual_seed(7))
    seen = x.double().numpy() if name == "fp16" else activations(x.double().numpy())
    right = seen @ weight.T + (layer.bias.double().numpy() if bias else 0)
    # an activation half-way between two steps may go either way: at most one of them in a product
    step = 0 if name == "fp16" else np.ptp(x.numpy()) / 255 * np.abs(weight).max()
    assert np.abs(layer(x).numpy() - right).max() < 1e-4 + step

    error = np.linalg.norm(weight - float_weight) / np.linalg.norm(float_weight)
    assert 0 < error < {"8da4w": 0.16, "8da8w": 0.02, "fp16": 3e-4}[name]
    if not lowered:
        return
    program = torch.export.export(layer, (x,), strict=False)
    path = tmp_path / "linear.pte"
    with path.open("wb") as file:
        Xnnpack().lower({"forward": program}, ["weight"] if name == "fp16" else []).write_to_file(file)
    (output,) = Runtime.get().load_program(str(path)).load_method("forward").execute([x])
    assert np.abs(output.numpy() - right).max() < 1e-4 + step
    (method,) = read_program(path).methods
    assert method.operator_names == ()
    assert path.stat().st_size < {"8da4w": 0.5, "8da8w": 0.7, "fp16": 0.8}[name] * OUTPUTS * INPUTS * 4 + 4096


@pytest.mark.parametrize("group", [32, 64])
def test_searched_scales_are_nearer_than_those_of_the_largest_value(group: int) -> None:
    layer = linear()
    right = layer.weight.double().numpy().copy()
    groups = right.reshape(OUTPUTS, -1, group)
    scale = np.maximum(np.abs(groups).max(axis=-1, keepdims=True) / 7.5, 1e-12)
    plain = (np.clip(np.round(groups / scale), -8, 7) * scale).reshape(right.shape)
    QUANTIZERS["8da4w"].quantise(layer, group)
    assert np.linalg.norm(dequantised("8da4w", layer) - right) < 0.97 * np.linalg.norm(plain - right)


def test_large_weights_are_quantised_in_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from etcli.export.quantizers import dynamic

    whole, blocks = linear(), linear()
    QUANTIZERS["8da8w"].quantise(whole, None)
    monkeypatch.setattr(dynamic, "BLOCK", 7 * INPUTS)
    QUANTIZERS["8da8w"].quantise(blocks, None)
    assert np.array_equal(dequantised("8da8w", whole), dequantised("8da8w", blocks))


def test_a_weight_beyond_float16_is_refused() -> None:
    layer = linear()
    layer.weight[3, 3] = 7e4
    with pytest.raises(ExportError, match="7e\\+04 is beyond float16") as caught:
        QUANTIZERS["fp16"].quantise(layer, None)
    assert caught.value.problems[0].code == "export.not_half"


CONFIG = ModelConfig(
    architecture="Qwen2ForCausalLM",
    hidden_size=64,
    intermediate_size=96,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=160,
    context_length=128,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=1e4),
    tied_embeddings=True,
    attention_bias=True,
)
PROMPT, DECODE = Shape(tokens=4, cache=16), Shape(tokens=1, cache=16)


def random_chunk(cache: CacheKind) -> Chunk:
    chunk = Chunk(CONFIG, 0, 1, head=True, cache=cache).eval()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in list(chunk.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        scale, shift = (0.1, 0.0) if parameter.dim() == 2 else (0.3, 1.0)
        value = torch.randn(parameter.shape, generator=generator) * scale + shift
        setattr(chunk.get_submodule(owner), leaf, nn.Parameter(value, requires_grad=False))
    return chunk


@pytest.mark.parametrize(
    ("backend", "cache", "precision", "group", "head", "shapes"),
    [
        ("xnnpack", "shift", "8da4w", 32, "8da8w", (PROMPT, DECODE)),
        ("xnnpack", "shift", "fp16", None, "fp32", (PROMPT,)),
        ("xnnpack", "shift", "fp32", None, "fp16", (DECODE,)),
        ("xnnpack", "ring", "8da4w", 32, "8da4w", (PROMPT,)),
        ("portable", "shift", "fp16", None, "fp16", (PROMPT,)),
    ],
)
def test_a_chunk_runs_as_eager_and_stores_what_is_foretold(
    backend: str,
    cache: CacheKind,
    precision: str,
    group: int | None,
    head: str,
    shapes: tuple[Shape, ...],
    tmp_path: Path,
) -> None:
    settings = PrecisionSettings(precision=precision, group_size=group, head=head)
    chunk = random_chunk(cache)
    plain = {shape: chunk(*sample_inputs(CONFIG, 1, shape, cache, seed=3))[0] for shape in shapes}
    quantise(chunk, settings)
    inputs = {str(shape): sample_inputs(CONFIG, 1, shape, cache, seed=3) for shape in shapes}
    eager = {name: chunk(*values) for name, values in inputs.items()}
    for shape in shapes:
        assert not torch.equal(eager[str(shape)][0], plain[shape]), "nothing was quantised"
    programs = {name: torch.export.export(chunk, values, strict=False) for name, values in inputs.items()}
    path = tmp_path / "chunk.pte"
    manager = BACKENDS[backend].lower(programs, half_weights(chunk, settings))
    with path.open("wb") as file:
        manager.write_to_file(file)

    if cache == "ring":
        from etcli.ops.library import attention_library
        from etcli.ops.loading import load_into_executorch

        load_into_executorch(attention_library())
    tolerance = max(BACKENDS[backend].precisions[name] for name in (precision, head))
    for name, values in inputs.items():
        outputs = Runtime.get().load_program(str(path)).load_method(name).execute(list(values))
        shaken = chunk(*nudged(values)) if rounds_activations(chunk, settings) else None
        compare_outputs(name, outputs, Expected(eager[name], shaken), tolerance)

    data = path.read_bytes()
    facts = read_program(path)
    blobs = list(stored_blobs(chunk, settings))
    named = {entry.key for entry in facts.named_data}
    assert {blob.parameter for blob in blobs} == {name for name, _ in chunk.named_parameters()}
    for blob in blobs:
        assert blob.data() in data, blob.parameter
        if backend == "xnnpack":  # norms lie among the program's own constants
            assert (key(blob) in named) == ("norm" not in blob.parameter), (blob.parameter, blob.part)
    if backend == "xnnpack":
        calls = {"shift": 1, "ring": 2}[cache]
        for method in facts.methods:
            assert sum(piece.calls for piece in method.delegates) == calls
            assert set(method.operator_names) <= {"etcli::ring_attention.out", "etcli::last_row.out"}


def key(blob: StoredBlob) -> str:
    """Under which ExecuTorch 1.5.1 files it: the SHA-256 of its bytes, prefixed for scales."""
    digest = hashlib.sha256(blob.data()).hexdigest()
    return f"scale_{digest}" if blob.part == "scale" else digest


def test_a_tied_head_and_a_head_of_its_own_precision_leave_the_layers_alone() -> None:
    one, other = random_chunk("shift"), random_chunk("shift")
    quantise(one, PrecisionSettings(precision="8da4w", group_size=32, head="8da8w"))
    quantise(other, PrecisionSettings(precision="8da4w", group_size=32, head="fp32"))
    first = {
        blob.parameter + blob.part: key(blob)
        for blob in stored_blobs(one, PrecisionSettings(precision="8da4w", head="8da8w"))
    }
    second = {
        blob.parameter + blob.part: key(blob)
        for blob in stored_blobs(other, PrecisionSettings(precision="8da4w", head="fp32"))
    }
    differing = {name for name in first | second if first.get(name) != second.get(name)}
    assert differing == {"lm_head.weightdata", "lm_head.weightscale"}


def test_quantising_frees_each_float_weight_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import weakref

    from etcli.export.quantizers import registry

    chunk = random_chunk("shift")
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    class Watching:
        def __getattr__(self, name: str) -> object:
            return getattr(QUANTIZERS["8da4w"], name)

        def quantise(self, layer: nn.Linear, group_size: int | None) -> None:
            nonlocal most
            alive.append(weakref.ref(layer.weight))
            QUANTIZERS["8da4w"].quantise(layer, group_size)
            gc.collect()
            most = max(most, sum(reference() is not None for reference in alive))

    monkeypatch.setattr(registry, "QUANTIZERS", {**QUANTIZERS, "watching": Watching()})
    quantise(chunk, PrecisionSettings(precision="watching", group_size=32, head="watching"))
    assert len(alive) == 4 * len(chunk.layers) + 1
    assert most == 0
