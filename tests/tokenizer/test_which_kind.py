"""A tokenizer's kind is told by its content, whatever its name; what is none is refused by what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizer_kinds import meta_folder, rank_file, spm_folder, spm_model

from etcli.common.errors import CheckpointError, ExitCode, Problem
from etcli.export.assembly import united_config
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.tokenizer.opening import open_tokenizer

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2183982\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>404</title></head></html>"


def failure(path: Path) -> Problem:
    with pytest.raises(CheckpointError) as caught:
        open_tokenizer(path)
    (problem,) = caught.value.problems
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


@pytest.fixture(scope="module")
def json_bytes(random_llama: Callable[..., Path]) -> bytes:
    return (random_llama(tokenizer=True) / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json", "vocabulary.bin"])
@pytest.mark.parametrize("kind", ["hf", "tiktoken", "sentencepiece"])
@pytest.mark.known_failure("tokenizer-tiktoken-or-sentencepiece")
def test_the_name_does_not_matter(tmp_path: Path, json_bytes: bytes, name: str, kind: str) -> None:
    content = {"hf": json_bytes, "tiktoken": rank_file(), "sentencepiece": spm_model()}[kind]
    (tmp_path / name).write_bytes(content)
    assert open_tokenizer(tmp_path / name).kind == kind
    if name != "vocabulary.bin":
        assert open_tokenizer(tmp_path).kind == kind


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (LFS, "checkpoint.lfs_pointer", "Git LFS pointer"),
        (PAGE, "tokenizer.invalid", "a web page"),
        (b"", "tokenizer.invalid", "empty"),
        (b"\0\1\2\3" * 100, "tokenizer.invalid", "no known kind"),
        (b"YQ== zero\n", "tokenizer.invalid", "no known kind"),
        (b'{"version": "1.0", "model": {"vocab', "tokenizer.invalid", "cannot be read by tokenizers"),
    ],
    ids=["lfs", "page", "empty", "garbage", "text", "cut-json"],
)
@pytest.mark.known_failure("tokenizer-damaged")
def test_what_is_no_tokenizer(tmp_path: Path, name: str, content: bytes, code: str, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    for place in (tmp_path, tmp_path / name):
        problem = failure(place)
        assert problem.code == code
        assert words in problem.message
        assert problem.file == tmp_path / name


def test_mistrals_own_form_alone_is_named(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text("{}")
    problem = failure(tmp_path)
    assert problem.code == "tokenizer.unsupported"
    assert "tekken.json" in problem.message
    assert "tokenizer.json" in str(problem.hint)


def test_tokenizer_json_wins_and_a_difference_is_told(tmp_path: Path, json_bytes: bytes) -> None:
    folder = spm_folder(tmp_path / "model", added_tokens_decoder=None)
    (folder / "tokenizer.json").write_bytes(json_bytes)
    tokenizer = open_tokenizer(folder)
    assert tokenizer.kind == "hf"
    (remark,) = tokenizer.remarks
    assert f"{tokenizer.vocab_size} tokens" in remark
    assert "400 tokens" in remark
    (folder / "tokenizer.model").write_bytes(PAGE)
    assert "cannot be read" in open_tokenizer(folder).remarks[0]


def test_two_of_one_size_need_no_remark(tmp_path: Path, json_bytes: bytes) -> None:
    for name in ("tokenizer.json", "tokenizer.model"):
        (tmp_path / name).write_bytes(json_bytes)
    assert open_tokenizer(tmp_path).remarks == ()


def test_weights_stand_for_their_folder(tmp_path: Path) -> None:
    folder = meta_folder(tmp_path / "model")
    for name, start in (
        ("consolidated.00.pth", b"PK\x03\x04"),
        ("legacy.pth", b"\x80\x02"),
        ("model.safetensors", b"\x10\0\0\0\0\0\0\0{}"),
    ):
        (folder / name).write_bytes(start + b"\0" * 100)
        assert open_tokenizer(folder / name).kind == "tiktoken"


def test_metas_layout_of_llama_2_is_explained(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(spm_model())
    folder = tmp_path / "llama-2-7b"
    folder.mkdir()
    (folder / "params.json").write_text("{}")
    problem = failure(folder)
    assert problem.code == "tokenizer.missing"
    assert f"cp {tmp_path / 'tokenizer.model'} {folder}" in str(problem.hint)


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json", "named", "chat_template.json"])
def test_where_the_chat_template_stands(tmp_path: Path, place: str) -> None:
    config: dict[str, object] = {"chat_template": None}
    if place == "tokenizer_config.json":
        config["chat_template"] = "found"
    if place == "named":
        config["chat_template"] = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "found"}]
    folder = spm_folder(tmp_path / "model", **config)
    if place == "chat_template.jinja":
        (folder / place).write_text("found")
    if place == "chat_template.json":
        (folder / place).write_text(json.dumps({"chat_template": "found"}))
    assert open_tokenizer(folder).chat_template == "found"
    spm_folder(folder, chat_template="written")
    expected = "found" if place == "chat_template.jinja" else "written"
    assert open_tokenizer(folder).chat_template == expected


def test_a_token_that_ends_turns_in_the_template_ends_answers(tmp_path: Path) -> None:
    decoder = {
        str(400 + at): {"content": text, "special": False} for at, text in enumerate(("<|im_end|>", "<|eot_id|>"))
    }
    folder = spm_folder(tmp_path / "model", added_tokens_decoder=decoder, chat_template="{{ messages }}<|im_end|>")
    tokenizer = open_tokenizer(folder)
    assert tokenizer.stop_ids == (2, 400)
    assert tokenizer.stop_sources[400] == ("<|im_end|> in the chat template",)


def config(vocabulary: int) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        hidden_size=8,
        intermediate_size=8,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        vocab_size=vocabulary,
        context_length=64,
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=10000.0),
        tied_embeddings=True,
        stop_ids=(7,),
    )


@pytest.mark.known_failure("tokenizer-larger-than-embedding")
def test_the_embedding_has_a_row_for_every_token(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(meta_folder(tmp_path / "model"))
    assert tokenizer.vocab_size == 596
    assert united_config(config(596), tokenizer).stop_ids == (7, 341, 348, 349)
    assert united_config(config(640), tokenizer).vocab_size == 640
    with pytest.raises(CheckpointError, match=r"596 tokens.*595 rows"):
        united_config(config(595), tokenizer)
