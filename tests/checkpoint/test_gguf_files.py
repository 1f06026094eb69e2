"""GGUF files of every shape a Llama comes in: written here with llama.cpp's rules, compared with the model they were written from."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf_writing import Values, write
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.gguf import canonical_names
from etcli.checkpoint.gguf_config import read_config
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import CheckpointError, Problem, Problems
from etcli.common.gguf_file import read_gguf_header


def only(path: Path) -> Problem:
    (problem,) = header_problems(path)
    assert problem.hint
    with pytest.raises(CheckpointError):
        open_checkpoint(path)
    return problem


@pytest.mark.parametrize(
    "options",
    [{}, {"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}, {"head_dim": 32}],
    ids=str,
)
def test_values_and_numbers_are_those_of_the_model(
    random_llama: Callable[..., Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = random_llama(**options)
    checkpoint, original = open_checkpoint(write(tmp_path / "m.gguf", folder)), open_checkpoint(folder)
    assert list(checkpoint.tensors) == list(original.tensors)
    for name in original.tensors:
        assert torch.equal(checkpoint.read(name), original.read(name)), name
    assert checkpoint.config.model_copy(update={"stop_ids": (1,)}) == original.config


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_stored_types(random_llama: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    folder = random_llama(head_dim=32)
    type_ = gguf.GGMLQuantizationType[kind]
    path = write(tmp_path / "m.gguf", folder, kind=type_)
    checkpoint, original = open_checkpoint(path), open_checkpoint(folder)
    for name, info in checkpoint.tensors.items():
        read = checkpoint.read(name)
        assert read.dtype == torch.float32
        assert read.is_contiguous()
        bound = {"F16": 1e-3, "BF16": 4e-3, "Q8_0": 5e-3, "Q4_0": 0.1, "Q5_1": 0.05}[kind]
        torch.testing.assert_close(read, original.read(name), rtol=0, atol=bound)
        assert info.dtype == (kind if read.ndim == 2 else "F32")


def test_a_read_tensor_is_a_copy(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_llama())
    before = path.read_bytes()
    open_checkpoint(path).read("model.norm.weight").zero_()
    assert path.read_bytes() == before


def test_the_default_model_reads_as_transformers_reads_it(default_model: Path) -> None:
    with torch.device("meta"):
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=576,
                intermediate_size=1536,
                num_hidden_layers=30,
                num_attention_heads=9,
                num_key_value_heads=3,
                vocab_size=49152,
                tie_word_embeddings=True,
            )
        )
    expected = load_gguf_checkpoint(str(default_model), return_tensors=True, model_to_load=model)["tensors"]
    checkpoint = open_checkpoint(default_model)
    assert set(expected) == set(checkpoint.tensors)
    for name in checkpoint.tensors:
        assert torch.equal(checkpoint.read(name), expected[name]), name


def llama3_divisors(theta: float, factor: float, original: int) -> Values:
    """What llama.cpp's converter writes, from transformers' own frequencies."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = theta ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    divisors: Values = (plain / scaled.double()).float().numpy()
    return divisors


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_told_by_its_divisors(
    random_llama: Callable[..., Path], tmp_path: Path, factor: float
) -> None:
    divisors = llama3_divisors(500000.0, factor, 8192)
    assert len(set(divisors.tolist())) > 2, "the smooth part is not exercised"
    path = write(tmp_path / "m.gguf", random_llama(), extra={"rope_freqs.weight": divisors}, rope__freq_base=500000.0)
    checkpoint = open_checkpoint(path)
    rope = checkpoint.config.rope
    assert (rope.kind, rope.theta, rope.factor, rope.original_context) == ("llama3", 500000.0, factor, 8192)
    assert (rope.low_freq_factor, rope.high_freq_factor) == (1.0, 4.0)
    assert checkpoint.unused == ()


def test_other_divisors_are_refused(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    divisors = np.linspace(1, 9, 8, dtype=np.float32)
    path = write(tmp_path / "m.gguf", random_llama(), extra={"rope_freqs.weight": divisors})
    assert "rope_freqs.weight" in only(path).message


def test_linear_scaling_in_both_spellings(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    for keys in ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, {"rope__scale_linear": 4.0}):
        rope = open_checkpoint(write(tmp_path / "m.gguf", random_llama(), **keys)).config.rope
        assert (rope.kind, rope.factor, rope.theta) == ("linear", 4.0, 10000.0)


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"arch": "gemma2"}, "architecture gemma2"),
        ({"arch": "qwen3moe"}, "architecture qwen3moe"),
        ({"rope__scaling__attn_factor": 1.2}, "attn_factor"),
        ({"pooling_type": 3}, "pooling_type 3"),
        ({"expert_count": 8}, "mixture of experts"),
        ({"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, "yarn"),
        ({"rope__dimension_count": 8}, "rope.dimension_count 8"),
        ({"attention__head_count_kv": [2, 4]}, "differs from layer to layer"),
        ({"logit_scale": 0.5}, "logit_scale"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused_by_name(
    random_llama: Callable[..., Path], tmp_path: Path, keys: dict[str, Any], word: str
) -> None:
    problem = only(write(tmp_path / "m.gguf", random_llama(), **keys))
    assert problem.code == "checkpoint.unsupported"
    assert word in problem.message


@pytest.mark.parametrize("value", [5, 0.5, True, "text", [1, 2], ["a"], [0.5]], ids=str)
@pytest.mark.parametrize(
    "key",
    [
        "general.architecture",
        "llama.feed_forward_length",
        "llama.attention.head_count_kv",
        "llama.attention.sliding_window",
        "llama.rope.freq_base",
        "llama.rope.scaling.type",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.eos_token_id",
        "split.count",
    ],
)
def test_a_key_of_another_type_never_ends_in_a_fault(default_model: Path, key: str, value: object) -> None:
    header = read_gguf_header(default_model)
    changed = dataclasses.replace(header, metadata={**header.metadata, key: value})
    names, _ = canonical_names(changed.tensors)
    problems = Problems()
    config = read_config(changed, names, problems)
    assert (config is None) == bool(problems)
    assert all(problem.hint for problem in problems.found)


def test_one_value_a_layer_is_fine_if_all_are_equal(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_llama(), attention__head_count_kv=[2, 2])
    assert open_checkpoint(path).config.num_kv_heads == 2


def test_missing_numbers_are_all_named(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_llama(), block_count=None, context_length=None)
    messages = " ".join(problem.message for problem in header_problems(path))
    assert "llama.block_count is missing" in messages
    assert "llama.context_length is missing" in messages


def test_a_cut_off_file_and_its_other_faults_come_together(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_llama(), drop=("model.norm.weight",))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 64)
    assert [problem.code for problem in header_problems(path)] == ["checkpoint.truncated", "checkpoint.tensor_missing"]


def test_tensors_without_a_place(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_llama(), extra={"vision.weight": np.zeros(4, np.float32)})
    assert open_checkpoint(path).unused == ("vision.weight",)
    path = write(tmp_path / "n.gguf", random_llama(attention_bias=True), drop=("model.layers.0.self_attn.o_proj.bias",))
    assert "o_proj.bias" in only(path).message


def test_extra_layers_are_refused(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_llama(), block_count=1)
    problem = only(path)
    assert problem.code == "checkpoint.tensor_unknown"
    assert "2 layers" in str(problem.hint)


def test_headers_are_checked_without_torch(default_model: Path) -> None:
    program = (
        "import sys, pathlib; from etcli.checkpoint.checks import header_problems;"
        "print(header_problems(pathlib.Path(sys.argv[1])), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(default_model)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] False\n"


def test_hashes_are_remembered_until_the_file_changes(
    random_llama: Callable[..., Path], tmp_path: Path, cache: Path
) -> None:
    path = write(tmp_path / "m.gguf", random_llama())
    name = "model.layers.1.mlp.up_proj.weight"
    before = open_checkpoint(path).sha256(name)
    (store,) = (cache / "tensor-hashes").iterdir()
    assert store.read_text() == f"{before}  {name}\n"
    store.write_text(f"damaged\n{'0' * 64}  {name}\n")
    assert open_checkpoint(path).sha256(name) == "0" * 64, "the remembered hash was not used"
    write(path, random_llama(seed=1))
    assert open_checkpoint(path).sha256(name) not in (before, "0" * 64)
