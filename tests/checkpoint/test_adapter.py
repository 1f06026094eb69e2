"""LoRA adapters merged while reading, against products in float64 and transformers with the merged weights."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from gguf_writing import write
from transformers import AutoModelForCausalLM

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ExitCode, Problem
from etcli.llama.passes import HeldPasses
from etcli.llama.reference import ReferenceDecoder

Build = Callable[..., Path]
Tensors = dict[str, torch.Tensor]
RANK, ALPHA = 4, 10
PEFT = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "somewhere/base",
    "r": RANK,
    "lora_alpha": ALPHA,
    "target_modules": ["q_proj", "v_proj", "down_proj"],
    "bias": "none",
    "fan_in_fan_out": False,
    "modules_to_save": None,
    "use_rslora": False,
    "use_dora": False,
    "lora_dropout": 0.05,
    "init_lora_weights": True,
    "rank_pattern": {},
    "alpha_pattern": {},
    "inference_mode": True,
}


def make(folder: Path, base: Path, *, extra: Tensors | None = None, drop: tuple[str, ...] = (), **keys: Any) -> Path:
    """An adapter as peft writes it, with random factors for every target of `base`."""
    folder.mkdir(exist_ok=True)
    config = PEFT | keys
    generator = torch.Generator().manual_seed(11)
    tensors: Tensors = {}
    for name, tensor in safetensors.torch.load_file(base / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if name.endswith(".weight") and module.split(".")[-1] in config["target_modules"]:
            rank = config["rank_pattern"].get(module.split(".")[-1], config["r"])
            for half, shape in (("A", (rank, tensor.shape[1])), ("B", (tensor.shape[0], rank))):
                tensors[f"base_model.model.{module}.lora_{half}.weight"] = torch.randn(shape, generator=generator)
    tensors = {name: tensor for name, tensor in tensors.items() if name not in drop} | (extra or {})
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def expected(base: Path, adapter: Path, scale: Callable[[str], float] = lambda _: ALPHA / RANK) -> Tensors:
    """Merged tensors, products in float64."""
    found = {name: tensor.double() for name, tensor in safetensors.torch.load_file(base / "model.safetensors").items()}
    factors = safetensors.torch.load_file(adapter / "adapter_model.safetensors")
    for name, b in factors.items():
        if ".lora_B." in name:
            module = name.removeprefix("base_model.model.").removesuffix(".lora_B.weight")
            a = factors[name.replace("lora_B", "lora_A")]
            found[f"{module}.weight"] += scale(module) * (b.double() @ a.double())
    return found


def assert_merged(base: Path, adapter: Path, wanted: Tensors) -> None:
    plain, merged = open_checkpoint(base), open_checkpoint(base, adapter)
    assert merged.config == plain.config
    assert merged.tensors == plain.tensors
    changed = 0
    for name in merged.tensors:
        read = merged.read(name)
        assert read.dtype == torch.float32
        torch.testing.assert_close(read.double(), wanted[name].double(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(merged.read_rows(name, 3, 9), read[3:9], rtol=1e-5, atol=1e-5)
        same = torch.equal(read, plain.read(name))
        assert (merged.sha256(name) == plain.sha256(name)) == same, name
        changed += not same
    assert changed


def only(base: Path, adapter: Path) -> Problem:
    (problem,) = header_problems(base, adapter)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    assert problem.file
    return problem


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_merged_tensors_are_base_plus_scaled_product(random_model: Build, tmp_path: Path, family: str) -> None:
    base = random_model(family)
    adapter = make(tmp_path / "adapter", base)
    assert_merged(base, adapter, expected(base, adapter))


def test_rank_stabilised_and_patterns(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama")
    patterns = {"rank_pattern": {"q_proj": 8}, "alpha_pattern": {r"layers\.1\.mlp\.down_proj": 3}}
    adapter = make(tmp_path / "adapter", base, use_rslora=True, **patterns)

    def scale(module: str) -> float:
        alpha = 3 if module.endswith("layers.1.mlp.down_proj") else ALPHA
        return alpha / math.sqrt(8 if module.endswith("q_proj") else RANK)

    assert_merged(base, adapter, expected(base, adapter, scale))


def test_modules_saved_whole_and_embedding_factors(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama")
    generator = torch.Generator().manual_seed(2)
    head = torch.randn(320, 64, generator=generator)
    a, b = torch.randn(RANK, 320, generator=generator), torch.randn(64, RANK, generator=generator)
    extra = {
        "base_model.model.lm_head.weight": head,
        "base_model.model.model.embed_tokens.lora_embedding_A": a,
        "base_model.model.model.embed_tokens.lora_embedding_B": b,
    }
    adapter = make(tmp_path / "adapter", base, extra=extra, modules_to_save=["lm_head"])
    wanted = expected(base, adapter)
    wanted["lm_head.weight"] = head.double()
    wanted["model.embed_tokens.weight"] += ALPHA / RANK * (b.double() @ a.double()).T
    assert_merged(base, adapter, wanted)


def test_an_adapter_over_gguf_adds_to_rows_in_their_order(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama")
    adapter = make(tmp_path / "adapter", base)
    merged = open_checkpoint(write(tmp_path / "m.gguf", base), adapter)
    for name, tensor in expected(base, adapter).items():
        torch.testing.assert_close(merged.read(name).double(), tensor, rtol=1e-5, atol=1e-5)


def test_logits_are_those_of_transformers_with_merged_weights(random_model: Build, tmp_path: Path) -> None:
    base = random_model("qwen2")
    adapter = make(tmp_path / "adapter", base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model.load_state_dict({name: tensor.float() for name, tensor in expected(base, adapter).items()})
    prompt, tokens = [5, 17, 200, 31, 8], [40, 2, 99]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0]
    checkpoint = open_checkpoint(base, adapter)
    judged = ReferenceDecoder(checkpoint, HeldPasses(checkpoint)).judge(prompt, tokens, cache_length=32)
    for position, answer in enumerate(judged, start=len(prompt) - 1):
        assert answer.best == int(logits[position].argmax())
        assert answer.token_logit == pytest.approx(float(logits[position][answer.token]), abs=1e-3, rel=1e-4)


def test_hashes_follow_the_adapter(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama")
    name, other = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"
    adapter = make(tmp_path / "adapter", base)
    before = {key: open_checkpoint(base, adapter).sha256(key) for key in (name, other)}
    make(tmp_path / "adapter", base, lora_alpha=11)
    after = {key: open_checkpoint(base, adapter).sha256(key) for key in (name, other)}
    assert before[name] != after[name]
    assert before[other] == after[other]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "trained biases (bias: all)"),
        ({"lora_bias": True}, "lora_bias"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"peft_type": "IA3"}, "the kind IA3"),
        ({"init_lora_weights": "pissa_niter_16"}, "pissa_niter_16"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"rank_pattern": {"((a+)+)+$": 2}}, "the pattern"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ],
    ids=str,
)
def test_kinds_that_are_not_supported_are_named(
    random_model: Build, tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    base = random_model("llama")
    adapter = make(tmp_path / "adapter", base)
    (adapter / "adapter_config.json").write_text(json.dumps(PEFT | keys))
    problem = only(base, adapter)
    assert problem.code == "adapter.unsupported"
    assert words in problem.message


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"r": 0}, "r is 0"),
        ({"lora_alpha": "16"}, "lora_alpha is '16'"),
        ({"r": None}, "r is missing"),
        ({"rank_pattern": []}, None),
        ({"rank_pattern": ["q"]}, "rank_pattern"),
        ({"target_modules": 5}, "target_modules is 5"),
    ],
    ids=str,
)
def test_a_wrong_configuration_is_named(
    random_model: Build, tmp_path: Path, keys: dict[str, Any], words: str | None
) -> None:
    base = random_model("llama")
    adapter = make(tmp_path / "adapter", base)
    (adapter / "adapter_config.json").write_text(json.dumps(PEFT | keys))
    if words is None:
        assert header_problems(base, adapter) == []
        return
    problem = only(base, adapter)
    assert problem.code == "adapter.config"
    assert words in problem.message


Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"drop": (f"{Q}.lora_B.weight",)}, "adapter.tensor", "lora_A.weight comes without its other half"),
        ({"extra": {f"{Q}.lora_magnitude_vector": torch.ones(64)}}, "adapter.tensor", "lora_magnitude_vector"),
        ({"extra": {f"{Q}.lora_A.weight": torch.ones(2, 64)}}, "adapter.tensor", "its rank is 4"),
        (
            {"extra": {f"{Q}.lora_A.weight": torch.ones(4, 32)}},
            "adapter.base",
            "a matrix of [64, 32], the network's is [64, 64]",
        ),
        ({"extra": {f"{Q.replace('.0.', '.7.')}.lora_A.weight": torch.ones(4, 64)}}, "adapter.tensor", "layers.7"),
        ({"extra": {"base_model.model.lm_head.weight": torch.ones(400, 64)}}, "adapter.base", "[400, 64]"),
        ({"target_modules": ["q_proj", "fc1"]}, "adapter.tensor", "its target fc1 is no module of the network"),
        ({"extra": {"unrelated": torch.ones(3)}}, "adapter.tensor", "unrelated"),
        (
            {"extra": {f"{Q}.lora_A.weight": torch.ones(4, 64).to(torch.float8_e4m3fn)}},
            "adapter.unsupported",
            "F8_E4M3",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_adapters_that_do_not_fit_are_told_why(
    random_model: Build, tmp_path: Path, options: dict[str, Any], code: str, words: str
) -> None:
    base = random_model("llama")
    problem = only(base, make(tmp_path / "adapter", base, **options))
    assert problem.code == code
    assert words in problem.message


def test_targets_without_tensors(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama")
    adapter = make(tmp_path / "adapter", base)
    (adapter / "adapter_config.json").write_text(json.dumps(PEFT | {"target_modules": ["q_proj", "k_proj"]}))
    assert "no tensors for its target k_proj" in only(base, adapter).message


def test_a_tied_head_is_not_changed_on_one_side(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama", tie_word_embeddings=True)
    for name in ("lm_head", "model.embed_tokens"):
        adapter = make(tmp_path / "adapter", base, extra={f"base_model.model.{name}.weight": torch.ones(320, 64)})
        problem = only(base, adapter)
        assert problem.code == "adapter.unsupported"
        assert "one in this network" in problem.message


def test_files_that_are_not_there(random_model: Build, tmp_path: Path) -> None:
    base = random_model("llama")
    assert only(base, tmp_path / "none").code == "adapter.missing"
    assert only(base, base).code == "adapter.missing"
    adapter = make(tmp_path / "adapter", base)
    weights = adapter / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-100])
    assert only(base, adapter).code == "checkpoint.truncated"
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n")
    assert only(base, adapter).code == "checkpoint.lfs_pointer"
    shutil.move(weights, adapter / "adapter_model.bin")
    assert "pickled" in only(base, adapter).message
