"""A network's numbers as a Hugging Face `config.json`: the inverse of `hf_config.py`."""

from __future__ import annotations

from typing import Any

from etcli.checkpoint.families import FAMILIES
from etcli.manifests.model import AQLM_GROUP, ModelConfig, RopeConfig


def hf_config_values(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """`config.json` of a network whose weights are of `dtype` (as `float16`), in the spelling that transformers 4 and 5 both read.

    Which linears AQLM leaves as they are is listed as transformers does.
    """
    family = FAMILIES[config.architecture]
    values: dict[str, Any] = {
        "architectures": [config.architecture],
        "model_type": family.model_type,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope.theta,
        "rope_scaling": _scaling(config.rope),
        "tie_word_embeddings": config.tied_embeddings,
        "torch_dtype": dtype,
    }
    if family.qkv_bias is None:
        values["attention_bias"] = config.attention_bias
    if family.mlp_bias:
        values["mlp_bias"] = config.mlp_bias
    if family.sliding is not None:
        values["sliding_window"] = config.sliding_window
    if family.sliding == "some":
        values["use_sliding_window"] = False
    if config.bos_id is not None:
        values["bos_token_id"] = config.bos_id
    if config.stop_ids:
        values["eos_token_id"] = config.stop_ids[0] if len(config.stop_ids) == 1 else list(config.stop_ids)
    if config.aqlm is not None:
        values["quantization_config"] = {
            "quant_method": "aqlm",
            "nbits_per_codebook": 8,
            "num_codebooks": config.aqlm.codebooks,
            "out_group_size": 1,
            "in_group_size": AQLM_GROUP,
            "linear_weights_not_to_quantize": _plain(config),
        }
    return values


def _scaling(rope: RopeConfig) -> dict[str, Any] | None:
    if rope.kind == "default":
        return None
    values: dict[str, Any] = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        values |= {
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_context,
        }
    return values


def _plain(config: ModelConfig) -> list[str]:
    kept = config.aqlm.kept if config.aqlm is not None else ()
    # transformers matches modules, which have no `.weight`; converters of AQLM write the names of weights
    return ["lm_head", "lm_head.weight", "model.embed_tokens.weight", *(f"{name}.weight" for name in kept)]
