"""Checkpoints of Meta's and torchtune's form, written by their rules from Hugging Face folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

State = dict[str, torch.Tensor]

META = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}
TORCHTUNE = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.norm.weight": "norm.scale",
    "lm_head.weight": "output.weight",
    "self_attn.o_proj": "attn.output_proj",
    "self_attn.": "attn.",
    "post_attention_layernorm.weight": "mlp_norm.scale",
    "input_layernorm.weight": "sa_norm.scale",
    "mlp.gate_proj": "mlp.w1",
    "mlp.down_proj": "mlp.w2",
    "mlp.up_proj": "mlp.w3",
}


def hf_state(folder: Path) -> State:
    """The state dict that transformers has for `folder`, each tensor by itself."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    tied = model.config.tie_word_embeddings
    return {
        name: tensor.clone() for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")
    }


def renamed(folder: Path, names: dict[str, str], *, interleaved: bool = True) -> State:
    """The state dict of `folder` under other names, query and key rows in interleaved pairs."""
    config = json.loads((folder / "config.json").read_text())
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    state = {}
    for name, tensor in hf_state(folder).items():
        match = re.search(r"self_attn\.([qk])_proj", name)
        if match and interleaved:
            rows, *rest = tensor.shape
            half = rows // heads[match[1]] // 2
            tensor = tensor.view(heads[match[1]], 2, half, *rest).transpose(1, 2).reshape(tensor.shape)
        own = name.removeprefix("model.") if ".layers." in name else name
        for known, other in names.items():
            own = own.replace(known, other)
        state[own] = tensor.contiguous()
    return state


def params(folder: Path, **changes: Any) -> dict[str, Any]:
    """What Meta's `params.json` says of the network in `folder`."""
    config = json.loads((folder / "config.json").read_text())
    multiple, wanted = 32, config["intermediate_size"]
    plain = int(2 * 4 * config["hidden_size"] / 3)
    values = {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "vocab_size": -1,
        "multiple_of": multiple,
        "ffn_dim_multiplier": (wanted - multiple / 2) / plain,
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
    }
    return {key: value for key, value in (values | changes).items() if value is not None}


def split(state: State, shards: int, *, embedding_dim: int) -> list[State]:
    """The state dict as fairscale's model-parallel layers hold it: column-parallel ones by output, row-parallel ones by input features."""
    parts: list[State] = [{} for _ in range(shards)]
    for name, tensor in state.items():
        dim = 1 if name.endswith(("attention.wo.weight", "w2.weight")) else 0
        dim = embedding_dim if name.startswith("tok_embeddings") else dim
        whole = "norm" in name or name == "rope.freqs"
        for part, cut in zip(parts, [tensor] * shards if whole else tensor.chunk(shards, dim), strict=True):
            part[name] = cut.clone()
    return parts


def write_meta(
    folder: Path, target: Path, *, shards: int = 1, embedding_dim: int = 0, legacy: bool = False, **changes: Any
) -> Path:
    """Write the network in `folder` to `target` as Meta publishes it; `changes` are keys of `params.json`, None for one to leave out."""
    target.mkdir(parents=True, exist_ok=True)
    state = renamed(folder, META) | {"rope.freqs": torch.ones(8)}
    for index, part in enumerate(split(state, shards, embedding_dim=embedding_dim)):
        torch.save(part, target / f"consolidated.{index:02d}.pth", _use_new_zipfile_serialization=not legacy)
    (target / "params.json").write_text(json.dumps(params(folder, **changes)))
    return target


def assert_same_tensors(checkpoint: Any, folder: Path) -> None:
    """Every tensor of `checkpoint` is that of `folder`, to the bit."""
    expected = hf_state(folder)
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in expected.items():
        read = checkpoint.read(name)
        assert read.is_contiguous()
        assert read.dtype == torch.float32
        assert checkpoint.tensors[name].shape == tuple(read.shape)
        torch.testing.assert_close(read, tensor.float(), rtol=0, atol=0, msg=name)
