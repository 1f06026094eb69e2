"""Meta's own form: single files and model-parallel shards give transformers' tensors and logits; what params.json leaves unsaid is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch_writing import META, assert_same_tensors, params, renamed, write_meta
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.meta_config import read_params
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import CheckpointError, ExitCode, Problem, Problems
from etcli.manifests.model import ModelConfig

Build = Callable[..., Path]


def only(folder: Path) -> Problem:
    (problem,) = header_problems(folder)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    ("network", "form"),
    [
        ({}, {}),
        ({"dtype": "bfloat16"}, {"shards": 2}),
        ({"num_key_value_heads": 4}, {"shards": 2, "embedding_dim": 1}),
        ({"num_attention_heads": 8, "num_key_value_heads": 4}, {"shards": 4}),
        (
            {"num_attention_heads": 8, "num_key_value_heads": 4, "dtype": "float16"},
            {"shards": 4, "embedding_dim": 1, "legacy": True},
        ),
    ],
    ids=str,
)
@pytest.mark.known_failure("checkpoint-sharded-pth")
def test_tensors_are_those_of_transformers(
    random_llama: Build, tmp_path: Path, network: dict[str, Any], form: dict[str, Any]
) -> None:
    folder = random_llama(**network)
    checkpoint = open_checkpoint(write_meta(folder, tmp_path / "original", **form))
    assert_same_tensors(checkpoint, folder)
    assert checkpoint.format == "meta"
    assert checkpoint.unused == ("rope.freqs",)
    hugging = open_checkpoint(folder).config
    assert checkpoint.config == hugging.model_copy(
        update={"context_length": 2048, "stop_ids": (), "bos_id": None, "architecture": "LlamaForCausalLM"}
    )
    for name in (
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.embed_tokens.weight",
    ):
        whole = checkpoint.read(name)
        assert torch.equal(checkpoint.read_rows(name, 7, 41), whole[7:41])


def test_logits_are_those_of_an_implementation_of_metas_model(random_llama: Build, tmp_path: Path) -> None:
    """ExecuTorch's Llama takes Meta's names, row order and scaled rope as they are: it and transformers on what etcli reads must agree."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    folder = random_llama(rope_parameters=rope)
    changes = {"use_scaled_rope": True, "rope_scale_factor": 32}
    made = write_meta(folder, tmp_path / "meta", shards=2, **changes)
    checkpoint = open_checkpoint(made)
    values = params(folder, vocab_size=320, **changes)
    meta = construct_transformer(
        ModelArgs(**values, max_seq_len=64, max_context_len=64, generate_full_logits=True)
    ).eval()
    meta.load_state_dict(renamed(folder, META), strict=True)
    config = LlamaConfig.from_pretrained(folder)
    config.rope_parameters = rope | {"factor": checkpoint.config.rope.factor}
    ours = LlamaForCausalLM(config).eval()
    ours.load_state_dict({name: checkpoint.read(name) for name in checkpoint.tensors}, strict=True)
    tokens = torch.randint(0, 320, (1, 48), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
        torch.testing.assert_close(ours(tokens).logits, expected, rtol=0, atol=0)
        torch.testing.assert_close(
            meta(tokens)[0] if isinstance(meta(tokens), tuple) else meta(tokens), expected, rtol=1e-4, atol=1e-4
        )


def test_mistral_in_its_own_form(random_llama: Build, tmp_path: Path) -> None:
    folder = random_llama(head_dim=32)
    state = renamed(folder, META)
    safetensors.torch.save_file(state, tmp_path / "consolidated.safetensors")
    values = params(
        folder,
        multiple_of=None,
        ffn_dim_multiplier=None,
        hidden_dim=96,
        head_dim=32,
        vocab_size=320,
        sliding_window="4096",
    )
    (tmp_path / "params.json").write_text(json.dumps(values))
    checkpoint = open_checkpoint(tmp_path)
    assert_same_tensors(checkpoint, folder)
    assert checkpoint.config.architecture == "MistralForCausalLM"
    assert (checkpoint.config.context_length, checkpoint.config.sliding_window) == (4096, 4096)


def test_a_mistral_without_theta_is_guessed_only_where_all_agree(tmp_path: Path) -> None:
    mistral = LLAMA_2 | {"hidden_dim": 14336, "head_dim": 128, "multiple_of": None}
    config, remarks = read(tmp_path, mistral | {"sliding_window": 4096}, 32000, 14336)
    assert config is not None
    assert config.rope.theta == 10000
    assert any("rope_theta" in remark for remark in remarks)
    (tmp_path / "params.json").write_text(json.dumps(mistral))
    problems = Problems()
    assert read_params(tmp_path, {}, problems, []) is None
    (problem,) = (problem for problem in problems.found if "rope_theta" in problem.message)
    assert problem.code == "checkpoint.config"
    assert '"rope_theta": 1000000' in str(problem.hint)


def test_shards_that_share_kv_heads_are_refused(random_llama: Build, tmp_path: Path) -> None:
    write_meta(random_llama(num_attention_heads=8, num_key_value_heads=4), tmp_path, shards=4)
    path = tmp_path / "params.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"n_kv_heads": 2}))
    problem = only(tmp_path)
    assert problem.code == "checkpoint.unsupported"
    assert "4 shards share 2 KV heads (n_kv_heads)" in problem.message
    assert "at most 2 shards" in str(problem.hint)


def test_a_network_without_a_head_is_tied(random_llama: Build, tmp_path: Path) -> None:
    folder = random_llama(tie_word_embeddings=True)
    checkpoint = open_checkpoint(write_meta(folder, tmp_path, shards=2))
    assert checkpoint.config.tied_embeddings
    assert_same_tensors(checkpoint, folder)


def test_config_json_may_stand_in_for_params(random_llama: Build, tmp_path: Path) -> None:
    folder = random_llama()
    write_meta(folder, tmp_path)
    (tmp_path / "params.json").unlink()
    assert only(tmp_path).code == "checkpoint.missing"
    assert "params.json" in only(tmp_path).message
    shutil.copy(folder / "config.json", tmp_path)
    assert_same_tensors(open_checkpoint(tmp_path), folder)
    # whoever renamed the tensors may have left their rows where they were
    assert any("taken to be in Meta's order" in remark for remark in open_checkpoint(tmp_path).remarks)


@pytest.mark.parametrize(
    ("lost", "found", "expected"),
    [
        (["00"], "consolidated.01.pth", "consolidated.00.pth"),
        (["01", "02"], "consolidated.03.pth", "consolidated.02.pth"),
    ],
)
@pytest.mark.known_failure("checkpoint-sharded-pth")
def test_missing_shards_are_named(
    random_llama: Build, tmp_path: Path, lost: list[str], found: str, expected: str
) -> None:
    write_meta(random_llama(num_attention_heads=8, num_key_value_heads=4), tmp_path, shards=4)
    for number in lost:
        (tmp_path / f"consolidated.{number}.pth").unlink()
    problem = only(tmp_path)
    assert problem.code == "checkpoint.shard_missing"
    assert found in problem.message.split("expected")[0]
    assert expected in problem.message.split("expected")[1]


def test_a_last_shard_that_is_missing_shows_in_the_shapes(random_llama: Build, tmp_path: Path) -> None:
    write_meta(random_llama(), tmp_path, shards=2)
    shutil.move(tmp_path / "consolidated.01.pth", tmp_path / "other.pth")
    problem = only(tmp_path)
    assert problem.code == "checkpoint.shard_missing"
    assert (
        problem.message
        == "the folder holds 1 of 2 shards: found consolidated.00.pth, expected also consolidated.01.pth"
    )


def test_a_shard_too_many_is_found(random_llama: Build, tmp_path: Path) -> None:
    write_meta(random_llama(), tmp_path, shards=2)
    shutil.copy(tmp_path / "consolidated.01.pth", tmp_path / "consolidated.02.pth")
    problem = only(tmp_path)
    assert problem.code == "checkpoint.ambiguous"
    assert "3 of 2 shards" in problem.message


def test_a_shard_of_another_model_is_found(random_llama: Build, tmp_path: Path) -> None:
    write_meta(random_llama(), tmp_path, shards=2)
    write_meta(random_llama(intermediate_size=128), tmp_path / "other", shards=2)
    shutil.copy(tmp_path / "other" / "consolidated.01.pth", tmp_path)
    problems = header_problems(tmp_path)
    assert "checkpoint.shard_mismatch" in {problem.code for problem in problems}
    assert any("feed_forward.w1" in problem.message for problem in problems)


@pytest.mark.known_failure("checkpoint-mixed-formats")
def test_norms_that_differ_between_shards_are_found_by_their_hashes(random_llama: Build, tmp_path: Path) -> None:
    write_meta(random_llama(), tmp_path, shards=2)
    whole = open_checkpoint(tmp_path)
    before = {name: whole.sha256(name) for name in whole.tensors}
    path = tmp_path / "consolidated.01.pth"
    part = torch.load(path)
    part["layers.1.ffn_norm.weight"] = part["layers.1.ffn_norm.weight"] + 1
    torch.save(part, path)
    mixed = open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"layers\.1\.ffn_norm\.weight differs") as caught:
        mixed.sha256("model.layers.1.post_attention_layernorm.weight")
    assert caught.value.problems[0].code == "checkpoint.shard_mismatch"
    assert mixed.sha256("model.norm.weight") == before["model.norm.weight"]


@pytest.mark.parametrize("name", ["norm.weight", "tok_embeddings.weight", "layers.0.attention.wq.weight"])
@pytest.mark.parametrize("shape", [(), (5,), (0, 64)], ids=str)
def test_tensors_of_no_matrix_in_shards(random_llama: Build, tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    write_meta(random_llama(), tmp_path, shards=2)
    for path in sorted(tmp_path.glob("*.pth")):
        torch.save(torch.load(path) | {name: torch.zeros(shape)}, path)
    problems = header_problems(tmp_path)
    assert problems
    assert all(problem.hint and problem.exit_code == ExitCode.CHECKPOINT for problem in problems)


def test_weights_in_two_forms_are_refused(random_llama: Build, tmp_path: Path) -> None:
    folder = random_llama()
    write_meta(folder, tmp_path)
    safetensors.torch.save_file(renamed(folder, META), tmp_path / "consolidated.safetensors")
    assert only(tmp_path).code == "checkpoint.ambiguous"


def test_damage_in_several_shards_comes_at_once(random_llama: Build, tmp_path: Path) -> None:
    write_meta(random_llama(), tmp_path, shards=2)
    (tmp_path / "consolidated.00.pth").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    whole = (tmp_path / "consolidated.01.pth").read_bytes()
    (tmp_path / "consolidated.01.pth").write_bytes(whole[:5000])
    (tmp_path / "params.json").write_text("{}")
    codes = {problem.code for problem in header_problems(tmp_path)}
    assert codes == {"checkpoint.lfs_pointer", "checkpoint.truncated", "checkpoint.config"}


@pytest.mark.parametrize(
    ("changes", "code", "words", "hint"),
    [
        ({"ffn_dim_multiplier": 1.3}, "checkpoint.config", "size of 224, the weights (w1) have 96", "params.json"),
        (
            {"n_kv_heads": 4},
            "checkpoint.tensor_shape",
            "layers.*.attention.wk.weight (layers 0 to 1) is [32, 64]",
            "n_kv_heads: 2",
        ),
        ({"n_layers": 3}, "checkpoint.tensor_missing", "layers.2.attention.wq.weight is missing", "n_layers"),
        ({"n_layers": 1}, "checkpoint.tensor_unknown", "no place", "(n_layers)"),
        ({"vocab_size": 999}, "checkpoint.tensor_shape", "tok_embeddings.weight is [320, 64]", "320"),
        ({"dim": None}, "checkpoint.config", "dim is missing", ""),
        ({"moe": {"num_experts": 8}}, "checkpoint.unsupported", "a mixture of experts (moe)", ""),
        ({"quantization_args": {"group_size": 32}}, "checkpoint.unsupported", "quantised", ""),
        ({"lora_args": {"rank": 16}}, "checkpoint.unsupported", "LoRA", ""),
        ({"alibi": True}, "checkpoint.unsupported", "not known: alibi", "params.json"),
        ({"use_scaled_rope": True}, "checkpoint.config", "by how much", "rope_scale_factor"),
        ({"rope_theta": "big"}, "checkpoint.config", "rope_theta", ""),
        ({"n_heads": "9" * 5000}, "checkpoint.config", "n_heads is '9999", ""),
        ({"norm_eps": 10**400}, "checkpoint.config", "norm_eps is 1000", ""),
        (
            {"use_hf_rope": False},
            "checkpoint.unsupported",
            "ExecuTorch's converter renamed (use_hf_rope)",
            "Hugging Face",
        ),
    ],
    ids=str,
)
def test_wrong_params(
    random_llama: Build, tmp_path: Path, changes: dict[str, Any], code: str, words: str, hint: str
) -> None:
    write_meta(random_llama(), tmp_path, **changes)
    problems = header_problems(tmp_path)
    assert code in {problem.code for problem in problems}
    assert any(words in problem.message for problem in problems), problems
    assert any(hint in str(problem.hint) for problem in problems), problems


LLAMA_2 = {"n_heads": 32, "n_layers": 32, "dim": 4096, "multiple_of": 256, "norm_eps": 1e-5, "vocab_size": -1}
LLAMA_3 = {"n_heads": 32, "n_layers": 32, "dim": 4096, "n_kv_heads": 8, "vocab_size": 128256, "norm_eps": 1e-5} | {
    "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3,
    "rope_theta": 500000.0,
}
SCALED = LLAMA_3 | {"use_scaled_rope": True}
SMALL = SCALED | {"multiple_of": 256}

# What Meta publishes in params.json; then vocabulary, feed-forward size, KV heads, rope, theta and context as in config.json of the same models.
PUBLISHED: dict[str, tuple[dict[str, Any], int, int, int, Any, float, int]] = {
    "llama 1 7B": (LLAMA_2 | {"norm_eps": 1e-6}, 32000, 11008, 32, "default", 1e4, 2048),
    "llama 2 7B": (LLAMA_2, 32000, 11008, 32, "default", 1e4, 4096),
    "llama 2 70B": (
        LLAMA_2
        | {"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80},
        *(32000, 28672, 8, "default", 1e4, 4096),
    ),
    "llama 3 8B": (LLAMA_3, 128256, 14336, 8, "default", 5e5, 8192),
    "llama 3.1 8B": (SCALED, 128256, 14336, 8, 8.0, 5e5, 131072),
    "llama 3.2 1B": (
        SMALL | {"dim": 2048, "n_layers": 16, "ffn_dim_multiplier": 1.5},
        *(128256, 8192, 8, 32.0, 5e5, 131072),
    ),
    "llama 3.2 3B": (
        SMALL | {"dim": 3072, "n_layers": 28, "n_heads": 24, "ffn_dim_multiplier": 1.0},
        *(128256, 8192, 8, 32.0, 5e5, 131072),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.known_failure("checkpoint-vocab-size-minus-one", "rope-scale-factor-guessed")
def test_published_params_give_the_published_networks(tmp_path: Path, name: str) -> None:
    values, vocabulary, inner, kv_heads, rope, theta, context = PUBLISHED[name]
    config, remarks = read(tmp_path, values, vocabulary, inner)
    assert config is not None
    assert (config.vocab_size, config.intermediate_size, config.num_kv_heads) == (vocabulary, inner, kv_heads)
    assert (config.rope.theta, config.context_length) == (theta, context)
    assert any(f"no rope_theta; {theta:.0f}" in remark for remark in remarks) == ("rope_theta" not in values)
    assert config.rope.kind == ("default" if rope == "default" else "llama3")
    if rope != "default":
        assert config.rope.factor == rope
        assert (config.rope.low_freq_factor, config.rope.high_freq_factor, config.rope.original_context) == (
            1.0,
            4.0,
            8192,
        )
        assert any(f"so it is {rope:g}" in remark for remark in remarks)
    assert any(str(context) in remark for remark in remarks)


def read(folder: Path, values: dict[str, Any], vocabulary: int, inner: int) -> tuple[ModelConfig | None, list[str]]:
    from etcli.checkpoint.base import TensorInfo

    (folder / "params.json").write_text(json.dumps(values))
    shapes = {
        "model.embed_tokens.weight": (vocabulary, values["dim"]),
        "lm_head.weight": (vocabulary, values["dim"]),
        "model.layers.0.mlp.gate_proj.weight": (inner, values["dim"]),
        f"model.layers.{values['n_layers'] - 1}.input_layernorm.weight": (values["dim"],),
    }
    problems, remarks = Problems(), list[str]()
    config = read_params(
        folder, {name: TensorInfo(shape, "BF16", 1) for name, shape in shapes.items()}, problems, remarks
    )
    assert not problems.found
    return config, remarks


@pytest.mark.known_failure("rope-scale-factor-guessed")
def test_what_is_said_is_not_assumed(tmp_path: Path) -> None:
    values = PUBLISHED["llama 3.2 1B"][0] | {"rope_scale_factor": 16, "max_seq_len": 4096}
    config, remarks = read(tmp_path, values, 128256, 8192)
    assert config is not None
    assert (config.rope.factor, config.context_length, remarks) == (16.0, 4096, [])


def test_a_llama_3_without_theta(tmp_path: Path) -> None:
    values = {key: value for key, value in PUBLISHED["llama 3 8B"][0].items() if key != "rope_theta"}
    config, remarks = read(tmp_path, values, 128256, 14336)
    assert config is not None
    assert config.rope.theta == 500000
    assert any("rope_theta" in remark for remark in remarks)
