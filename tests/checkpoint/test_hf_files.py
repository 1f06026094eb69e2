"""The files of a Hugging Face folder, pickled or safetensors: one, shards with an index, shards without; what cannot be right is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch_writing import State, assert_same_tensors, hf_state

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.hf_files import PYTORCH, SAFETENSORS, FileSet
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ExitCode, Problem

Build = Callable[..., Path]
BOTH = pytest.mark.parametrize("files", [PYTORCH, SAFETENSORS], ids=["bin", "safetensors"])


def only(folder: Path) -> Problem:
    (problem,) = header_problems(folder)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


def save(state: State, path: Path) -> None:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)


def shard_name(files: FileSet, number: int, total: int) -> str:
    return f"{files.stem}-{number:05d}-of-{total:05d}{files.suffix}"


@pytest.fixture
def folder(random_llama: Build, tmp_path: Path) -> Path:
    """A configuration without weights."""
    (tmp_path / "model").mkdir()
    for name in ("config.json", "generation_config.json"):
        shutil.copy(random_llama() / name, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def state(random_llama: Build) -> State:
    return hf_state(random_llama())


def write_shards(folder: Path, files: FileSet, state: State, total: int = 3, *, index: bool = True) -> None:
    places = {}
    for number, part in enumerate(range(total), start=1):
        names = list(state)[part::total]
        save({name: state[name] for name in names}, folder / shard_name(files, number, total))
        places |= dict.fromkeys(names, shard_name(files, number, total))
    if index:
        (folder / files.index).write_text(json.dumps({"metadata": {}, "weight_map": places}))


@BOTH
@pytest.mark.parametrize("form", ["single", "index", "no index"])
def test_tensors_are_those_of_transformers(
    folder: Path, state: State, random_llama: Build, files: FileSet, form: str
) -> None:
    if form == "single":
        save(state, folder / files.single)
    else:
        write_shards(folder, files, state, index=form == "index")
    checkpoint = open_checkpoint(folder)
    assert_same_tensors(checkpoint, random_llama())
    assert checkpoint.format == ("pytorch" if files is PYTORCH else "safetensors")
    assert ["without an index" in remark for remark in checkpoint.remarks] == [True] * (form == "no index")


def test_shared_storages_and_parameters_of_a_whole_model(folder: Path, random_llama: Build) -> None:
    """What `torch.save(model.state_dict())` writes of a tied model: both names, one storage."""
    source = random_llama(tie_word_embeddings=True, dtype="bfloat16")
    shutil.copy(source / "config.json", folder)
    state = hf_state(source)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    whole = torch.cat([state[f"model.layers.0.mlp.{kind}_proj.weight"] for kind in ("gate", "up")])
    state["model.layers.0.mlp.gate_proj.weight"], state["model.layers.0.mlp.up_proj.weight"] = whole[:96], whole[96:]
    state["model.layers.1.mlp.up_proj.weight"] = state["model.layers.1.mlp.up_proj.weight"].t().contiguous().t()
    torch.save({name: torch.nn.Parameter(tensor) for name, tensor in state.items()}, folder / "pytorch_model.bin")
    checkpoint = open_checkpoint(folder)
    assert_same_tensors(checkpoint, source)
    assert checkpoint.remarks == ()
    assert checkpoint.unused == ("lm_head.weight",)
    checkpoint.sha256("model.embed_tokens.weight")


@BOTH
@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_missing_shards_are_named(folder: Path, state: State, files: FileSet, index: bool) -> None:
    write_shards(folder, files, state, index=index)
    (folder / shard_name(files, 2, 3)).unlink()
    problem = only(folder)
    assert problem.code == "checkpoint.shard_missing"
    assert problem.message == f"the folder lacks 1 of 3 shards: {shard_name(files, 2, 3)}"


@BOTH
@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.known_failure("checkpoint-stale-shards")
def test_a_stale_single_file_beside_shards(folder: Path, state: State, files: FileSet, index: bool) -> None:
    write_shards(folder, files, state, index=index)
    save(state, folder / files.single)
    problem = only(folder)
    assert problem.code == "checkpoint.ambiguous"
    assert problem.message.startswith(f"{files.single} stands beside {shard_name(files, 1, 3)}")


@BOTH
def test_shards_of_two_saves(folder: Path, state: State, files: FileSet) -> None:
    write_shards(folder, files, state, index=False)
    write_shards(folder, files, state, 2, index=False)
    problem = only(folder)
    assert problem.code == "checkpoint.ambiguous"
    assert "of 2 and of 3 files" in problem.message
    write_shards(folder, files, state)
    assert any("-of-00002" in remark and "left aside" in remark for remark in open_checkpoint(folder).remarks)


@BOTH
@pytest.mark.known_failure("checkpoint-stale-shards")
def test_tensors_in_several_shards(folder: Path, state: State, files: FileSet, random_llama: Build) -> None:
    write_shards(folder, files, state)
    other = {name: tensor + 1 for name, tensor in list(state.items())[1::3]}
    save(dict(list(state.items())[0::3]) | other, folder / shard_name(files, 1, 3))
    assert_same_tensors(open_checkpoint(folder), random_llama())
    (folder / files.index).unlink()
    problem = only(folder)
    assert problem.code == "checkpoint.duplicate_tensor"
    assert f"more than one shard holds {len(other)} tensors" in problem.message


@BOTH
@pytest.mark.parametrize("place", ["../other/weights.bin", "/etc/passwd", "a/../../b", "", "C:\\x"])
def test_an_index_that_leaves_the_folder(folder: Path, state: State, files: FileSet, place: str) -> None:
    write_shards(folder, files, state)
    places = json.loads((folder / files.index).read_text())["weight_map"] | {"model.norm.weight": place}
    (folder / files.index).write_text(json.dumps({"weight_map": places}))
    problem = only(folder)
    assert problem.code == "checkpoint.index"
    assert repr(place) in problem.message


@BOTH
def test_tensors_that_are_not_where_the_index_says(folder: Path, state: State, files: FileSet) -> None:
    write_shards(folder, files, state)
    places = json.loads((folder / files.index).read_text())["weight_map"]
    places["model.norm.weight"] = next(place for place in places.values() if place != places["model.norm.weight"])
    (folder / files.index).write_text(json.dumps({"weight_map": places}))
    problem = only(folder)
    assert problem.code == "checkpoint.index"
    assert "model.norm.weight" in problem.message


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_indices_that_are_wrong(folder: Path, state: State, content: str) -> None:
    write_shards(folder, PYTORCH, state)
    (folder / PYTORCH.index).write_text(content)
    assert only(folder).code in ("checkpoint.index", "checkpoint.shard_missing")


@pytest.mark.known_failure("checkpoint-mixed-formats")
def test_safetensors_win_over_pickles_and_say_so(folder: Path, state: State, random_llama: Build) -> None:
    save(state, folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"whatever")
    checkpoint = open_checkpoint(folder)
    assert_same_tensors(checkpoint, random_llama())
    assert any("pytorch_model*.bin are left aside" in remark for remark in checkpoint.remarks)


def test_consolidated_weights_beside_are_said_to_be_left_aside(folder: Path, state: State) -> None:
    """As Mistral publishes its models: both forms in one folder."""
    save(state, folder / "model.safetensors")
    save(state, folder / "consolidated.safetensors")
    (folder / "params.json").write_text("{}")
    checkpoint = open_checkpoint(folder)
    assert checkpoint.format == "safetensors"
    assert any("consolidated.* are left aside" in remark for remark in checkpoint.remarks)


def test_incomplete_safetensors_are_not_replaced_in_silence(folder: Path, state: State) -> None:
    write_shards(folder, SAFETENSORS, state)
    (folder / shard_name(SAFETENSORS, 1, 3)).unlink()
    save(state, folder / "pytorch_model.bin")
    problem = only(folder)
    assert problem.code == "checkpoint.shard_missing"
    assert shard_name(SAFETENSORS, 1, 3) in problem.message
    assert "pytorch_model" in str(problem.hint)


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.known_failure("checkpoint-hostile-pickle")
def test_hostile_shards_run_nothing_and_are_all_named(folder: Path, state: State, tmp_path: Path) -> None:
    write_shards(folder, PYTORCH, state)
    for number in (1, 3):
        value = {"a": torch.ones(1), "b": Hostile(tmp_path / "ran")}
        torch.save(value, folder / shard_name(PYTORCH, number, 3), _use_new_zipfile_serialization=number == 1)
    problems = header_problems(folder)
    assert [problem.code for problem in problems] == ["checkpoint.unsafe_pickle"] * 2
    assert [problem.file for problem in problems] == [folder / shard_name(PYTORCH, number, 3) for number in (1, 3)]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "checkpoint.lfs_pointer"),
        (b"", "checkpoint.truncated"),
        (b"<!DOCTYPE html>", "checkpoint.pickle"),
    ],
)
def test_files_that_are_none(folder: Path, content: bytes, code: str) -> None:
    (folder / "pytorch_model.bin").write_bytes(content)
    assert only(folder).code == code


def test_a_head_that_differs_from_the_embedding_it_is_tied_to(folder: Path, state: State) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    save(state, folder / "pytorch_model.bin")
    checkpoint = open_checkpoint(folder)
    assert any("lm_head.weight is left aside" in remark for remark in checkpoint.remarks)
    with pytest.raises(Exception, match=r"lm_head\.weight differs from the embedding") as caught:
        checkpoint.sha256("model.embed_tokens.weight")
    (problem,) = caught.value.problems  # type: ignore[attr-defined]
    assert problem.code == "checkpoint.tied_head"
    save(state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()}, folder / "pytorch_model.bin")
    open_checkpoint(folder).sha256("model.embed_tokens.weight")


def test_other_types_are_named_before_anything_is_read(folder: Path, state: State) -> None:
    save(state | {"model.norm.weight": state["model.norm.weight"].double()}, folder / "pytorch_model.bin")
    problem = only(folder)
    assert problem.code == "checkpoint.dtype"
    assert "F64" in problem.message
