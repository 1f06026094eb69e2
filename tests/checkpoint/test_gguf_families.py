"""Qwen, Mistral and models in parts as GGUF files, against the models they were written from and transformers' own reader."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf_writing import write
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ExitCode, Problem
from etcli.common.gguf_file import read_gguf_header

Build = Callable[..., Path]
ARCH = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def only(path: Path) -> Problem:
    (problem,) = header_problems(path)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("mistral", {}),
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {}),
        ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    ],
)
def test_values_and_numbers_are_those_of_the_model(
    random_model: Build, tmp_path: Path, family: str, options: dict[str, object]
) -> None:
    folder = random_model(family, **options)
    checkpoint = open_checkpoint(write(tmp_path / "m.gguf", folder, arch=ARCH[family]))
    original = open_checkpoint(folder)
    assert list(checkpoint.tensors) == list(original.tensors)
    for name in original.tensors:
        assert torch.equal(checkpoint.read(name), original.read(name)), name
    said = {"stop_ids": (1,), "architecture": original.config.architecture}
    assert checkpoint.config.model_copy(update=said) == original.config


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_transformers_reads_the_file_in_the_same_way(random_model: Build, tmp_path: Path, family: str) -> None:
    """So the rows of Qwen's queries and keys stand as they are, and Llama's are reordered, for other readers too."""
    folder = random_model(family)
    path = write(tmp_path / "m.gguf", folder, arch=family)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    expected = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    checkpoint = open_checkpoint(path)
    assert set(expected) == set(checkpoint.tensors)
    for name in checkpoint.tensors:
        assert torch.equal(checkpoint.read(name), expected[name]), name
    assert type(model).__name__ == checkpoint.config.architecture


def test_a_qwen3_without_its_norms_and_a_llama_with_them(random_model: Build, tmp_path: Path) -> None:
    folder = random_model("qwen3")
    names = tuple(f"model.layers.{layer}.self_attn.q_norm.weight" for layer in range(2))
    problem = only(write(tmp_path / "a.gguf", folder, arch="qwen3", drop=names))
    assert problem.code == "checkpoint.tensor_missing"
    assert "model.layers.*.self_attn.q_norm.weight (layers 0 to 1) is missing" in problem.message
    problem = only(write(tmp_path / "b.gguf", folder, arch="llama"))
    assert problem.code == "checkpoint.tensor_unknown"
    assert "self_attn.q_norm.weight" in problem.message


@pytest.mark.known_failure("checkpoint-bias-dropped")
def test_a_qwen2_without_biases(random_model: Build, tmp_path: Path) -> None:
    biases = tuple(f"model.layers.{layer}.self_attn.{kind}_proj.bias" for layer in range(2) for kind in "qkv")
    problems = header_problems(write(tmp_path / "m.gguf", random_model("qwen2"), arch="qwen2", drop=biases))
    assert [problem.code for problem in problems] == ["checkpoint.tensor_missing"] * 3


@pytest.mark.parametrize(
    "name", ["blk.0.attn_sinks.weight", "rope_factors_long.weight", "position_embd.weight", "output.bias"]
)
def test_tensors_that_take_part_are_not_left_out(random_model: Build, tmp_path: Path, name: str) -> None:
    problem = only(write(tmp_path / "m.gguf", random_model("llama"), extra={name: np.ones(8, np.float32)}))
    assert problem.code == "checkpoint.tensor_unknown"


def test_old_frequency_tables_are_left_out(random_model: Build, tmp_path: Path) -> None:
    name = "blk.0.attn_rot_embd.weight"
    path = write(tmp_path / "m.gguf", random_model("llama"), extra={name: np.ones(8, np.float32)})
    assert open_checkpoint(path).unused == (name,)


def test_a_lora_adapter_is_no_model(random_model: Build, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), change=lambda writer: writer.add_type("adapter"))
    assert "LoRA adapter" in only(path).message


def test_scaling_of_the_kind_none_has_no_factor(random_model: Build, tmp_path: Path) -> None:
    keys = {"rope__scaling__type": "none", "rope__scaling__factor": 4.0}
    assert open_checkpoint(write(tmp_path / "m.gguf", random_model("llama"), **keys)).config.rope.kind == "default"


@pytest.fixture
def parts(random_model: Build, tmp_path: Path) -> list[Path]:
    """A model as llama.cpp's converter splits it, four tensors a part."""
    path = write(tmp_path / "whole.gguf", random_model("qwen2"), arch="qwen2")
    header = read_gguf_header(path)
    names = list(header.tensors)
    count = -(-len(names) // 4)
    files = [tmp_path / f"m-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    for number, file in enumerate(files):
        writer = gguf.GGUFWriter(file, "qwen2")
        if number == 0:
            for key, value in header.metadata.items():
                if key not in ("general.architecture", "GGUF.version"):
                    (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(names))
        for name in names[4 * number : 4 * number + 4]:
            tensor = header.tensors[name]
            values = np.memmap(path, "<f4", "r", offset=tensor.offset, shape=tensor.shape)
            writer.add_tensor(name, np.array(values))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return files


def test_parts_are_read_as_one(parts: list[Path]) -> None:
    whole, split = open_checkpoint(parts[0].with_name("whole.gguf")), open_checkpoint(parts[0])
    assert split.config == whole.config
    assert split.tensors == whole.tensors
    for name in whole.tensors:
        assert torch.equal(split.read(name), whole.read(name)), name
        assert split.sha256(name) == whole.sha256(name)


def test_parts_that_are_missing_or_cut_off_are_named(parts: list[Path]) -> None:
    parts[1].unlink()
    problem = only(parts[0])
    assert problem.code == "checkpoint.shard_missing"
    assert f"lacks 1 of its {len(parts)} parts: {parts[1].name}" in problem.message


def test_a_part_that_is_cut_off(parts: list[Path]) -> None:
    with parts[2].open("r+b") as file:
        file.truncate(parts[2].stat().st_size - 200)
    problem = only(parts[0])
    assert problem.code == "checkpoint.truncated"
    assert parts[2].name in problem.message


@pytest.mark.known_failure("checkpoint-lfs-pointer")
def test_a_part_that_is_a_pointer(parts: list[Path]) -> None:
    parts[2].write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert only(parts[0]).code == "checkpoint.lfs_pointer"


def test_parts_out_of_place(parts: list[Path]) -> None:
    assert f"Name the first part: {parts[0]}" == only(parts[1]).hint
    shutil.copy(parts[2], parts[1])
    assert "not part 2" in only(parts[0]).message
    alone = shutil.copy(parts[0], parts[0].with_name("alone.gguf"))
    assert only(Path(alone)).code == "checkpoint.split"
