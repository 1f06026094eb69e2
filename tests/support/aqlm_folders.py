"""Small random networks quantised by AQLM, as Hugging Face folders, beside the matrices that they stand for.

The tensors have the names, types and shapes that `convert_to_hf.py` of https://github.com/Vahe1994/AQLM writes; `config.json` is spelled as that
script does today (`quantization_config`) or did before transformers knew AQLM (`aqlm`, with code of its own beside it).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

GROUP = 8
ENTRIES = 256
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 320,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 5000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def dense_weight(codes: torch.Tensor, codebooks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The matrix `[out, in]` in float64 that `codes` `[out, in / 8, M]` stand for, written out without any of the product's code."""
    index = codes.to(torch.int64) % ENTRIES
    groups = sum(codebooks[m, :, 0].to(torch.float64)[index[:, :, m]] for m in range(index.shape[2]))
    assert isinstance(groups, torch.Tensor)
    return groups.reshape(len(codes), -1) * scales.to(torch.float64).reshape(-1, 1)


def write_aqlm_folder(
    path: Path,
    *,
    family: Literal["llama", "mistral", "qwen2", "qwen3"] = "llama",
    container: Literal["safetensors", "bin"] = "safetensors",
    shards: int = 1,
    spelling: Literal["quantization_config", "aqlm"] = "quantization_config",
    swapped: bool = False,
    codebooks: int = 2,
    kept: Iterable[str] = (),
    not_quantized: list[str] | None = None,
    dtype: torch.dtype = torch.float16,
    codes_dtype: torch.dtype = torch.int8,
    tokenizer: Path | None = None,
    seed: int = 0,
    **config: Any,
) -> dict[str, torch.Tensor]:
    """Make the folder `path` and give the network's plain weights by canonical name, in float64.

    Args:
        container: one file, or with `shards` that many and their index.
        spelling: of the configuration. The older one says nothing of what is kept and names code of its own, which nobody needs to run.
        swapped: whether dimensions 0 and 1 of the codes are the other way round, as in old checkpoints.
        kept: linears in layers to leave plain, as `model.layers.0.self_attn.q_proj`.
        not_quantized: `linear_weights_not_to_quantize` as it shall stand there, where that is not simply all other tensors.
        dtype: of everything but the codes.
        codes_dtype: `torch.int8` (wrapped, as published) or `torch.uint8`.
        tokenizer: a folder with a tokenizer to copy beside the weights.
        config: keys of `config.json`.
    """
    values = {**_SMALL, "model_type": family, "architectures": [_ARCHITECTURES[family]]} | config
    stored, dense = _tensors(values, codebooks, set(kept), dtype, codes_dtype, torch.Generator().manual_seed(seed))
    plain = [name for name in stored if not name.endswith((".codes", ".codebooks", ".scales"))]
    method: dict[str, Any] = {
        "nbits_per_codebook": 8,
        "num_codebooks": codebooks,
        "out_group_size": 1,
        "in_group_size": GROUP,
    }
    if spelling == "aqlm":
        values |= {
            "aqlm": method,
            "model_type": f"{family}_aqlm",
            "auto_map": {
                "AutoConfig": f"configuration_{family}_aqlm.{family.capitalize()}Config",
                "AutoModelForCausalLM": f"modeling_{family}_aqlm.{_ARCHITECTURES[family]}",
            },
        }
        if not_quantized is not None:
            method["linear_weights_not_to_quantize"] = not_quantized
    else:
        listed = [*dict.fromkeys([*plain, "lm_head.weight"])] if not_quantized is None else not_quantized
        values["quantization_config"] = {"quant_method": "aqlm", **method, "linear_weights_not_to_quantize": listed}
    if swapped:
        stored = {
            name: tensor.transpose(0, 1).contiguous() if name.endswith(".codes") else tensor
            for name, tensor in stored.items()
        }
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(values, indent=1))
    write_weights(path, stored, container, shards)
    if tokenizer is not None:
        for name in _TOKENIZER:
            if (tokenizer / name).is_file():
                shutil.copy(tokenizer / name, path)
    return dense


def write_weights(
    path: Path, tensors: Mapping[str, torch.Tensor], container: str = "safetensors", shards: int = 1
) -> None:
    """Save `tensors` in the folder `path` as transformers does, in one file or in `shards` with an index."""
    stem, suffix = ("model", ".safetensors") if container == "safetensors" else ("pytorch_model", ".bin")
    names = list(tensors)
    files = [f"{stem}-{number:05d}-of-{shards:05d}{suffix}" for number in range(1, shards + 1)]
    places = {name: files[index * shards // len(names)] for index, name in enumerate(names)}
    for file in files:
        part = {name: tensors[name] for name in names if places[name] == file}
        _save(part, path / (file if shards > 1 else stem + suffix))
    if shards > 1:
        (path / f"{stem}{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of the one safetensors file in the folder `path`, to be changed and saved again by `write_weights`."""
    import safetensors.torch

    return {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path / "model.safetensors").items()}


def _save(tensors: dict[str, torch.Tensor], file: Path) -> None:
    if file.suffix == ".safetensors":
        import safetensors.torch

        safetensors.torch.save_file(tensors, file)
    else:
        torch.save(tensors, file)


def _tensors(
    config: Mapping[str, Any],
    codebooks: int,
    kept: set[str],
    dtype: torch.dtype,
    codes_dtype: torch.dtype,
    random: torch.Generator,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors as they are stored, and the plain ones that they stand for, in float64."""
    stored: dict[str, torch.Tensor] = {}
    dense: dict[str, torch.Tensor] = {}

    def plain(name: str, *shape: int, mean: float = 0.0) -> None:
        stored[name] = (torch.randn(shape, generator=random) * 0.1 + mean).to(dtype)
        dense[name] = stored[name].to(torch.float64)

    def linear(name: str, rows: int, columns: int, *, bias: bool) -> None:
        if name in kept:
            plain(f"{name}.weight", rows, columns)
        else:
            codes = torch.randint(-128, 128, (rows, columns // GROUP, codebooks), generator=random, dtype=torch.int16)
            books = torch.randn(codebooks, ENTRIES, 1, GROUP, generator=random) * 0.1 / codebooks**0.5
            scales = torch.rand(rows, 1, 1, 1, generator=random) + 0.5
            # codes % 256 are the same bytes: int8 holds them wrapped, uint8 as they are
            parts = {"codes": codes.to(codes_dtype), "codebooks": books.to(dtype), "scales": scales.to(dtype)}
            stored.update({f"{name}.{part}": tensor for part, tensor in parts.items()})
            dense[f"{name}.weight"] = dense_weight(parts["codes"], parts["codebooks"], parts["scales"])
        if bias:
            plain(f"{name}.bias", rows)

    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key_value = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    chosen = bool(config.get("attention_bias"))
    qkv_bias, mlp_bias = chosen or config["architectures"] == ["Qwen2ForCausalLM"], bool(config.get("mlp_bias"))
    plain("model.embed_tokens.weight", config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        plain(f"{prefix}.input_layernorm.weight", hidden, mean=1.0)
        linear(f"{prefix}.self_attn.q_proj", query, hidden, bias=qkv_bias)
        linear(f"{prefix}.self_attn.k_proj", key_value, hidden, bias=qkv_bias)
        linear(f"{prefix}.self_attn.v_proj", key_value, hidden, bias=qkv_bias)
        linear(f"{prefix}.self_attn.o_proj", hidden, query, bias=chosen)
        plain(f"{prefix}.post_attention_layernorm.weight", hidden, mean=1.0)
        linear(f"{prefix}.mlp.gate_proj", inner, hidden, bias=mlp_bias)
        linear(f"{prefix}.mlp.up_proj", inner, hidden, bias=mlp_bias)
        linear(f"{prefix}.mlp.down_proj", hidden, inner, bias=mlp_bias)
        if config["architectures"] == ["Qwen3ForCausalLM"]:
            for kind in ("q", "k"):
                plain(f"{prefix}.self_attn.{kind}_norm.weight", head_dim, mean=1.0)
    plain("model.norm.weight", hidden, mean=1.0)
    if not config["tie_word_embeddings"]:
        plain("lm_head.weight", config["vocab_size"], hidden)
    return stored, dense
