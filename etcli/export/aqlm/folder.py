"""The files of an AQLM folder besides its weights, so that it stands by itself: for etcli, and for transformers with the package `aqlm`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etcli.checkpoint.hf_config import CONFIG, GENERATION
from etcli.checkpoint.hf_writing import hf_config_values
from etcli.common.files import write_atomically
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import DEMONSTRATION
from etcli.tokenizer.base import Tokenizer

README = "README.md"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_ENDS: tuple[str, ...] = ("bos_token_id", "eos_token_id")

_TEXT = f"""# An AQLM checkpoint of demonstration quality

These are {DEMONSTRATION}.

`etcli` made this folder in its cache for a recipe with `model.quantize: aqlm`. It is in the form that Hugging Face's transformers reads (with the
package `aqlm`): two codebooks of 256 vectors for groups of 8 weights, about 2 bits a weight. Embedding, norms and head are not quantised.

It may be deleted at any time: etcli makes it again, with the same bytes on the same kind of machine. How it was made and how far each linear
is from its original stands in `etcli-quantised.json`.
"""


def write_companions(folder: Path, config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Write configuration, tokenizer and README into `folder`; `config` is that of the quantised network, stop ids of the tokenizer included."""
    tokenizer.save(folder)
    if tokenizer.kind == "hf":
        _write_json(
            folder / _TOKENIZER_CONFIG,
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "clean_up_tokenization_spaces": False,
                "model_max_length": config.context_length,
                **tokenizer.special_tokens,
            },
        )
    bos = config.bos_id if config.bos_id is not None else tokenizer.bos_id
    values = hf_config_values(config.model_copy(update={"bos_id": bos}), "float16")
    _write_json(folder / CONFIG, {**values, "etcli_quality": DEMONSTRATION})
    _write_json(folder / GENERATION, {name: values[name] for name in _ENDS if name in values})
    write_atomically(folder / README, _TEXT)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
