"""What a small AQLM folder computes, by transformers with dense weights in float64 and nothing of the product's code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

_NOT_OF_THE_NETWORK = ("quantization_config", "aqlm", "auto_map")


def dense_network(folder: Path, dense: Mapping[str, torch.Tensor]) -> PreTrainedModel:
    """The network of `config.json` in `folder` with the weights `dense`, by canonical name, as `write_aqlm_folder` gives them."""
    values = json.loads((folder / "config.json").read_text())
    family = values.pop("model_type").removesuffix("_aqlm")
    values = {key: value for key, value in values.items() if key not in _NOT_OF_THE_NETWORK}
    config = AutoConfig.for_model(family, **values, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config).to(torch.float64).eval()
    left = model.load_state_dict(dict(dense), strict=False)
    assert not left.unexpected_keys
    assert set(left.missing_keys) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    return model


def dense_logits(folder: Path, dense: Mapping[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """Logits `[len(ids), V]`, float64."""
    with torch.no_grad():
        found: torch.Tensor = dense_network(folder, dense)(torch.tensor([ids])).logits[0]
    return found
