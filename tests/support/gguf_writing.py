"""GGUF files written by llama.cpp's rules from Hugging Face folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

Values = npt.NDArray[np.float32]

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    outer, kind = name.rsplit(".", 1)
    if outer.startswith("model.layers."):
        _, _, layer, inner = outer.split(".", 3)
        return f"blk.{layer}.{NAMES[inner]}.{kind}"
    return f"{NAMES[outer]}.{kind}"


def interleaved(values: Values, heads: int) -> Values:
    """Rotate-half rows put in pairs, one row after the other."""
    size = len(values) // heads
    order = [
        head * size + half * (size // 2) + pair for head in range(heads) for pair in range(size // 2) for half in (0, 1)
    ]
    return values[order]


def write(
    path: Path,
    folder: Path,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    change: Callable[[gguf.GGUFWriter], None] | None = None,
    encode: Callable[[str, Values, gguf.GGMLQuantizationType], npt.NDArray[np.uint8]] | None = None,
    drop: tuple[str, ...] = (),
    extra: dict[str, Values] | None = None,
    **keys: Any,
) -> Path:
    """The model of a Hugging Face folder as a GGUF file; `keys` replace numbers of its metadata, None leaves one out.

    `encode` makes the stored bytes of matrices, in place of the gguf package's quantiser.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    arch = keys.pop("arch", "llama")
    writer = gguf.GGUFWriter(path, arch)
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": head_dim,
        "vocab_size": config.vocab_size,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
    } | {name.replace("__", "."): value for name, value in keys.items()}
    for name, value in numbers.items():
        if isinstance(value, list):
            writer.add_array(f"{arch}.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"{arch}.{name}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{name}", value)
        elif value is not None:
            writer.add_uint32(f"{arch}.{name}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    if change is not None:
        change(writer)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if arch == "llama" and (".q_proj" in name or ".k_proj" in name):
            values = interleaved(
                values, config.num_attention_heads if ".q_proj" in name else config.num_key_value_heads
            )
        stored = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        if name not in drop:
            data = gguf.quantize(values, stored) if encode is None or values.ndim == 1 else encode(name, values, stored)
            writer.add_tensor(gguf_name(name), data, raw_dtype=stored)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
