"""Every stored type of GGUF, decoded value by value in float64 from ggml's block layouts (`ggml-common.h`, `ggml-quants.c`)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf_writing import Values, write

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint

Block = npt.NDArray[np.uint8]


def half(block: Block, at: int) -> float:
    return float(block[at : at + 2].view(np.float16)[0])


def nibbles(block: Block) -> list[int]:
    return [int(byte) & 15 for byte in block] + [int(byte) >> 4 for byte in block]


def fifth_bits(block: Block) -> list[int]:
    word = int(block.view(np.uint32)[0])
    return [(word >> bit & 1) << 4 for bit in range(32)]


def q4_0(block: Block) -> Iterator[float]:
    return (half(block, 0) * (code - 8) for code in nibbles(block[2:]))


def q4_1(block: Block) -> Iterator[float]:
    return (half(block, 0) * code + half(block, 2) for code in nibbles(block[4:]))


def q5_0(block: Block) -> Iterator[float]:
    codes = zip(nibbles(block[6:]), fifth_bits(block[2:6]), strict=True)
    return (half(block, 0) * ((low | high) - 16) for low, high in codes)


def q5_1(block: Block) -> Iterator[float]:
    codes = zip(nibbles(block[8:]), fifth_bits(block[4:8]), strict=True)
    return (half(block, 0) * (low | high) + half(block, 2) for low, high in codes)


def q8_0(block: Block) -> Iterator[float]:
    return (half(block, 0) * int(code) for code in block[2:].view(np.int8))


def q2_k(block: Block) -> Iterator[float]:
    scales, codes = block[:16], block[16:80]
    for value in range(256):
        upper, rest = divmod(value, 128)
        shift, lane = divmod(rest, 32)
        scale = int(scales[value // 16])
        code = int(codes[32 * upper + lane]) >> (2 * shift) & 3
        yield half(block, 80) * (scale & 15) * code - half(block, 82) * (scale >> 4)


def q3_k(block: Block) -> Iterator[float]:
    mask, codes, packed = block[:32], block[32:96], block[96:108]
    for value in range(256):
        upper, rest = divmod(value, 128)
        shift, lane = divmod(rest, 32)
        group = value // 16
        low = int(packed[group % 8]) >> (4 * (group // 8)) & 15
        high = int(packed[8 + group % 4]) >> (2 * (group // 4)) & 3
        kept = int(mask[lane]) >> (4 * upper + shift) & 1
        code = (int(codes[32 * upper + lane]) >> (2 * shift) & 3) - (0 if kept else 4)
        yield half(block, 108) * ((low | high << 4) - 32) * code


def scale_and_minimum(packed: Block, group: int) -> tuple[int, int]:
    if group < 4:
        return int(packed[group]) & 63, int(packed[group + 4]) & 63
    both = int(packed[group + 4])
    return both & 15 | int(packed[group - 4]) >> 6 << 4, both >> 4 | int(packed[group]) >> 6 << 4


def q4_k(block: Block) -> Iterator[float]:
    for value in range(256):
        scale, minimum = scale_and_minimum(block[4:16], value // 32)
        byte = int(block[16 + 32 * (value // 64) + value % 32])
        code = byte >> 4 if value // 32 % 2 else byte & 15
        yield half(block, 0) * scale * code - half(block, 2) * minimum


def q5_k(block: Block) -> Iterator[float]:
    for value in range(256):
        scale, minimum = scale_and_minimum(block[4:16], value // 32)
        byte = int(block[48 + 32 * (value // 64) + value % 32])
        code = byte >> 4 if value // 32 % 2 else byte & 15
        code |= (int(block[16 + value % 32]) >> (value // 32) & 1) << 4
        yield half(block, 0) * scale * code - half(block, 2) * minimum


def q6_k(block: Block) -> Iterator[float]:
    for value in range(256):
        upper, rest = divmod(value, 128)
        quarter, lane = divmod(rest, 32)
        low = int(block[64 * upper + 32 * (quarter % 2) + lane]) >> (4 * (quarter // 2)) & 15
        high = int(block[128 + 32 * upper + lane]) >> (2 * quarter) & 3
        scale = int(block[192:208].view(np.int8)[value // 16])
        yield half(block, 208) * scale * ((low | high << 4) - 32)


def f16(block: Block) -> Iterator[float]:
    return iter([half(block, 0)])


def bf16(block: Block) -> Iterator[float]:
    return iter([float((block.view(np.uint16).astype(np.uint32) << 16).view(np.float32)[0])])


# Decoder, and where in a block the half-precision scales stand.
DECODERS: dict[str, tuple[Callable[[Block], Iterator[float]], tuple[int, ...]]] = {
    "F16": (f16, (0,)),
    "BF16": (bf16, (0,)),
    "Q4_0": (q4_0, (0,)),
    "Q4_1": (q4_1, (0, 2)),
    "Q5_0": (q5_0, (0,)),
    "Q5_1": (q5_1, (0, 2)),
    "Q8_0": (q8_0, (0,)),
    "Q2_K": (q2_k, (80, 82)),
    "Q3_K": (q3_k, (108,)),
    "Q4_K": (q4_k, (0, 2)),
    "Q5_K": (q5_k, (0, 2)),
    "Q6_K": (q6_k, (208,)),
}


def random_blocks(values: Values, kind: gguf.GGMLQuantizationType, generator: np.random.Generator) -> Block:
    """Random codes under random scales, one row of blocks for each row of `values`."""
    length, size = gguf.constants.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (values.size // length, size), np.uint8)
    for at in DECODERS[kind.name][1]:
        scales = generator.uniform(0.001, 0.1, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(values.shape[0], -1)


@pytest.mark.parametrize("kind", DECODERS)
def test_values_are_those_of_the_format(random_llama: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    type_ = gguf.GGMLQuantizationType[kind]
    generator = np.random.default_rng(3)
    written: dict[str, Block] = {}

    def encode(name: str, values: Values, stored: gguf.GGMLQuantizationType) -> Block:
        written[name] = random_blocks(values, stored, generator)
        return written[name]

    folder = random_llama(hidden_size=256, intermediate_size=256, num_hidden_layers=1, vocab_size=16, head_dim=64)
    checkpoint = open_checkpoint(write(tmp_path / "m.gguf", folder, kind=type_, encode=encode))
    decode, _ = DECODERS[kind]
    size = gguf.constants.GGML_QUANT_SIZES[type_][1]
    for name in ("model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"):
        rows = written[name][:6]
        expected = np.array([[x for block in row.reshape(-1, size) for x in decode(block)] for row in rows], np.float64)
        read = checkpoint.read(name)
        np.testing.assert_allclose(read[:6].numpy(), expected, rtol=1e-6, atol=1e-7)
        assert checkpoint.tensors[name].dtype == kind
        assert torch.equal(checkpoint.read_rows(name, 2, 5), read[2:5])


def test_types_that_cannot_be_decoded_are_named_with_tensor_and_file(
    random_llama: Callable[..., Path], tmp_path: Path
) -> None:
    def encode(name: str, values: Values, stored: gguf.GGMLQuantizationType) -> Block:
        length, size = gguf.constants.GGML_QUANT_SIZES[stored]
        return np.zeros((values.shape[0], values.shape[1] // length * size), np.uint8)

    folder = random_llama(hidden_size=256, intermediate_size=256, num_hidden_layers=1, vocab_size=16, head_dim=64)
    path = write(tmp_path / "m.gguf", folder, kind=gguf.GGMLQuantizationType.Q8_K, encode=encode)
    (problem,) = header_problems(path)
    assert problem.code == "checkpoint.dtype"
    assert "m.gguf holds token_embd.weight and 8 more tensors in the type Q8_K" in problem.message


def test_rows_are_those_of_the_whole(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    folder = random_llama(attention_bias=True)
    for checkpoint in (open_checkpoint(write(tmp_path / "m.gguf", folder)), open_checkpoint(folder)):
        for name, info in checkpoint.tensors.items():
            first, last = 3, info.shape[0] - 2
            rows = checkpoint.read_rows(name, first, last)
            assert rows.is_contiguous()
            assert torch.equal(rows, checkpoint.read(name)[first:last]), name


def test_reading_takes_no_memory_beyond_the_result(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    folder = random_llama(vocab_size=1 << 17, hidden_size=64, num_hidden_layers=1, tie_word_embeddings=True)
    checkpoint = open_checkpoint(write(tmp_path / "m.gguf", folder, kind=gguf.GGMLQuantizationType.Q4_1))
    name = "model.embed_tokens.weight"
    whole = 4 * (1 << 17) * 64
    checkpoint.read("model.norm.weight")  # torch is imported now
    tracemalloc.start()
    try:
        checkpoint.read_rows(name, 0, 256)
        assert tracemalloc.get_traced_memory()[1] < whole / 20
        checkpoint.read(name)
        # values and, for one block of rows at a time, the codec's own copies
        assert tracemalloc.get_traced_memory()[1] < 2.5 * whole
    finally:
        tracemalloc.stop()
