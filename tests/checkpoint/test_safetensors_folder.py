"""Hugging Face folders: values as transformers has them, and every damage explained from headers."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from transformers import LlamaForCausalLM

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import CheckpointError, EtcliError, ExitCode, Problem

Build = Callable[..., Path]


@pytest.fixture
def copy(random_llama: Build, tmp_path: Path) -> Build:
    def build(**options: object) -> Path:
        return Path(shutil.copytree(random_llama(**options), tmp_path / "model"))

    return build


def change(folder: Path, **keys: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def drop(folder: Path, *names: str) -> dict[str, torch.Tensor]:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items() if name not in names}
    safetensors.torch.save_file(tensors, path)
    return tensors


def only(folder: Path) -> Problem:
    (problem,) = header_problems(folder)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "bfloat16"},
        {"dtype": "float16", "tie_word_embeddings": True},
        {"shard_size": "40KB"},
        {"attention_bias": True, "mlp_bias": True, "head_dim": 32},
    ],
    ids=str,
)
def test_tensors_are_those_of_transformers(random_llama: Build, options: dict[str, object]) -> None:
    folder = random_llama(**options)
    checkpoint = open_checkpoint(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = dict(model.named_parameters())
    assert set(checkpoint.tensors) == set(expected)
    assert checkpoint.unused == ()
    for name, parameter in expected.items():
        read = checkpoint.read(name)
        assert read.dtype == torch.float32
        assert read.is_contiguous()
        assert checkpoint.tensors[name].shape == tuple(read.shape)
        torch.testing.assert_close(read, parameter.detach(), rtol=0, atol=0)


def test_a_read_tensor_does_not_write_to_the_file(copy: Build) -> None:
    folder = copy()
    before = (folder / "model.safetensors").read_bytes()
    open_checkpoint(folder).read("model.norm.weight").zero_()
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_bare_model_is_read_under_the_same_names(random_llama: Build, tmp_path: Path) -> None:
    folder = random_llama(tie_word_embeddings=True)
    LlamaForCausalLM.from_pretrained(folder).model.save_pretrained(tmp_path)
    change(tmp_path, architectures=["LlamaForCausalLM"])
    whole, bare = open_checkpoint(folder), open_checkpoint(tmp_path)
    for name in whole.tensors:
        torch.testing.assert_close(bare.read(name), whole.read(name), rtol=0, atol=0)


@pytest.mark.known_failure("checkpoint-tied-head")
def test_a_tied_model_with_a_head_of_its_own_lists_it_as_unused(copy: Build) -> None:
    folder = copy()
    change(folder, tie_word_embeddings=True)
    assert open_checkpoint(folder).unused == ("lm_head.weight",)


@pytest.mark.known_failure("checkpoint-tied-head", "checkpoint-tensors-checked-late")
def test_an_untied_model_without_a_head_is_told_how_to_tie(copy: Build) -> None:
    folder = copy(tie_word_embeddings=True)
    change(folder, tie_word_embeddings=False)
    problem = only(folder)
    assert problem.code == "checkpoint.tensor_missing"
    assert "lm_head.weight" in problem.message
    assert "tie_word_embeddings" in str(problem.hint)


@pytest.mark.known_failure("checkpoint-shape-mismatch")
def test_wrong_kv_heads_name_the_right_number_once(copy: Build) -> None:
    folder = copy(num_hidden_layers=3)
    change(folder, num_key_value_heads=4)
    problems = header_problems(folder)
    assert [problem.code for problem in problems] == ["checkpoint.tensor_shape"] * 2
    assert "k_proj.weight (layers 0 to 2) is [32, 64], the configuration asks for [64, 64]" in problems[0].message
    assert all("num_key_value_heads: 2" in str(problem.hint) for problem in problems)


@pytest.mark.known_failure("checkpoint-tensors-checked-late")
def test_all_problems_come_at_once(copy: Build) -> None:
    folder = copy(attention_bias=True)
    drop(folder, "model.norm.weight", "model.layers.1.mlp.up_proj.weight")
    change(folder, vocab_size=999, attention_bias=False)
    codes = sorted(problem.code for problem in header_problems(folder))
    shape, missing = "checkpoint.tensor_shape", "checkpoint.tensor_missing"
    assert codes == [missing, missing, shape, shape, "checkpoint.tensor_unknown"]
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert len(caught.value.problems) == 5


def test_more_layers_than_the_configuration_are_not_left_out_silently(copy: Build) -> None:
    folder = copy(num_hidden_layers=3)
    change(folder, num_hidden_layers=2)
    problem = only(folder)
    assert problem.code == "checkpoint.tensor_unknown"
    assert "3 layers" in str(problem.hint)


def test_missing_last_layers_are_counted(copy: Build) -> None:
    folder = copy(num_hidden_layers=2)
    change(folder, num_hidden_layers=4)
    problems = header_problems(folder)
    assert len(problems) == 9
    assert "layers 2 to 3" in problems[0].message
    assert "end after layer 1" in str(problems[0].hint)


@pytest.mark.known_failure("checkpoint-truncated")
def test_a_cut_off_file_says_how_many_bytes_it_lacks(copy: Build) -> None:
    path = (folder := copy()) / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 100)
    problem = only(folder)
    assert problem.code == "checkpoint.truncated"
    assert str(size) in problem.message
    assert problem.file == path


@pytest.mark.known_failure("checkpoint-lfs-pointer")
def test_shards(copy: Build) -> None:
    folder = copy(shard_size="40KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    shards[0].unlink()
    with shards[1].open("r+b") as file:
        file.truncate(50)
    shards[2].write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n")
    found = {problem.code: problem for problem in header_problems(folder)}
    assert set(found) == {"checkpoint.shard_missing", "checkpoint.truncated", "checkpoint.lfs_pointer"}
    assert shards[0].name in found["checkpoint.shard_missing"].message
    assert "git lfs pull" in str(found["checkpoint.lfs_pointer"].hint)


def test_an_index_cannot_lead_out_of_the_folder(copy: Build) -> None:
    folder = copy(shard_size="40KB")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = "../secret.safetensors"
    index.write_text(json.dumps(content))
    assert only(folder).code == "checkpoint.index"


def test_an_index_that_names_the_wrong_shard(copy: Build) -> None:
    folder = copy(shard_size="40KB")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    places = content["weight_map"]
    places["model.norm.weight"] = next(file for file in places.values() if file != places["model.norm.weight"])
    index.write_text(json.dumps(content))
    assert "model.norm.weight" in only(folder).message


def test_types_that_cannot_be_read_are_named(copy: Build) -> None:
    folder = copy()
    tensors = drop(folder)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float8_e4m3fn)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    problem = only(folder)
    assert problem.code == "checkpoint.dtype"
    assert "F8_E4M3" in problem.message


@pytest.mark.known_failure("checkpoint-dialect")
def test_names_of_another_program_are_recognised(copy: Build) -> None:
    folder = copy()
    safetensors.torch.save_file({"transformer.h.0.attn.c_attn.weight": torch.zeros(4)}, folder / "model.safetensors")
    problem = only(folder)
    assert problem.code == "checkpoint.dialect"
    assert "GPT-2" in problem.message


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}, "12 bytes for F32"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}, "does not stand"),
        ({"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}, "damaged"),
        ({"dtype": "F33", "shape": [4], "data_offsets": [0, 16]}, "F33"),
        ({"dtype": "F32", "shape": "wide", "data_offsets": [0, 16]}, "damaged"),
        ({"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]}, "damaged"),
        ([], "damaged"),
    ],
    ids=str,
)
def test_headers_that_lie(copy: Build, tensor: object, why: str) -> None:
    folder = copy()
    header = json.dumps({"a": tensor}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    problem = only(folder)
    assert problem.code == "checkpoint.safetensors"
    assert why in problem.message


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 8, b"\xff" * 64, struct.pack("<Q", 2) + b"[]"])
def test_headers_that_are_none(copy: Build, content: bytes) -> None:
    folder = copy()
    (folder / "model.safetensors").write_bytes(content)
    assert only(folder).code in ("checkpoint.safetensors", "checkpoint.truncated")


def test_hashes_follow_bytes_type_and_shape(copy: Build) -> None:
    folder = copy()
    first = open_checkpoint(folder)
    before = {name: first.sha256(name) for name in first.tensors}
    assert len(set(before.values())) == len(before)
    tensors = drop(folder)
    tensors["model.norm.weight"][3] += 1
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    second = open_checkpoint(folder)
    changed = {name for name in before if second.sha256(name) != before[name]}
    assert changed == {"model.norm.weight"}


def test_a_tensor_that_is_not_there(random_llama: Build) -> None:
    checkpoint = open_checkpoint(random_llama())
    for call in (checkpoint.read, checkpoint.sha256):
        with pytest.raises(CheckpointError, match=r"no tensor model\.other"):
            call("model.other")


def test_a_file_that_shrinks_after_opening_is_explained(copy: Build) -> None:
    folder = copy()
    checkpoint = open_checkpoint(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(EtcliError) as caught:
        checkpoint.read("model.norm.weight")
    assert caught.value.problems[0].code == "checkpoint.truncated"


@pytest.mark.known_failure("checkpoint-stale-shards")
def test_a_tensor_in_two_shards_is_the_one_that_the_index_names(copy: Build) -> None:
    folder = copy(shard_size="40KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    name = "model.layers.0.mlp.down_proj.weight"
    right = safetensors.torch.load_file(folder / index[name])[name]
    for file in sorted(set(index.values()) - {index[name]}):
        tensors = safetensors.torch.load_file(folder / file)
        safetensors.torch.save_file(tensors | {name: right + 1}, folder / file)
    assert torch.equal(open_checkpoint(folder).read(name), right)


def test_links_that_lead_nowhere_are_named(copy: Build) -> None:
    folder = copy()
    weights = folder / "model.safetensors"
    weights.unlink()
    weights.symlink_to(folder / "blobs" / "moved")
    problem = only(folder)
    assert problem.code == "checkpoint.missing"
    assert "model.safetensors" in problem.message
    assert "cp -rL" in problem.hint


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_of_a_files_name_is_no_file(copy: Build, name: str) -> None:
    folder = copy()
    (folder / name).unlink()
    (folder / name).mkdir()
    assert only(folder).message.endswith(f"without {name}")
