"""Whether a `config.json` is of an AQLM checkpoint, in today's spelling or the older one.

The older block comes with `model_type: llama_aqlm` and with modelling code of its own (`auto_map`); what that code computes is what
transformers' does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

METHOD = "aqlm"
"""The name of the method in `quant_method`, and the key of the older block."""

_OWN_CODE = re.compile(r"(configuration|modeling)_[a-z0-9]+(_aqlm)?\.\w+")


def is_aqlm(config: Mapping[str, Any]) -> bool:
    """Whether the configuration is of an AQLM checkpoint, in either spelling."""
    block = config.get("quantization_config")
    if block:
        return isinstance(block, dict) and block.get("quant_method") == METHOD
    return is_older(config)


def is_older(config: Mapping[str, Any]) -> bool:
    """Whether the configuration has the older block, which stands beside a model type and code of its own."""
    return isinstance(config.get(METHOD), dict) and bool(config[METHOD])


def plain_model_type(config: Mapping[str, Any]) -> Any:
    """`model_type` without the `_aqlm` that stands there beside the older block."""
    kind = config.get("model_type")
    return kind.removesuffix(f"_{METHOD}") if isinstance(kind, str) and is_older(config) else kind


def names_own_code(config: Mapping[str, Any]) -> bool:
    """Whether `auto_map` is there for the sake of the older block alone: it names the files that AQLM's converter put beside it."""
    places = config.get("auto_map")
    return (
        is_older(config)
        and isinstance(places, dict)
        and all(isinstance(place, str) and _OWN_CODE.fullmatch(place.rpartition("--")[2]) for place in places.values())
    )
