"""The families of networks that are read: one row each, found by the name that a checkpoint gives itself.

Defaults are those of transformers' configuration classes (`LlamaConfig`, `MistralConfig`, `Qwen2Config`, `Qwen3Config`), for keys that a
`config.json` leaves out; where biases and norms stand is read off the modelling files beside them. GGUF names are those of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        architecture: the name in `architectures` of a `config.json`.
        model_type: the name in `model_type`, which transformers goes by.
        context: `max_position_embeddings` where the key is absent.
        kv_heads: `num_key_value_heads` where the key is absent; None for as many as query heads, which a null means in every family.
        head_dim: `head_dim` where the key is absent; None for hidden size over heads.
        qkv_bias: whether query, key and value have biases; None where `attention_bias` says so, for the output projection too.
        mlp_bias: whether `mlp_bias` is a key of the family.
        qk_norm: whether queries and keys are normalised over the head dim.
        sliding: `every` layer slides where `sliding_window` is a number, `some` do by `use_sliding_window` or `layer_types`; None: never.
        sliding_window: `sliding_window` where the key is absent.
        max_window_layers: number of first layers that never slide where the key is absent.
    """

    architecture: str
    model_type: str
    context: int
    kv_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool | None = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding: Literal["every", "some"] | None = None
    sliding_window: int | None = None
    max_window_layers: int = 0


LLAMA = Family("LlamaForCausalLM", "llama", context=2048, qkv_bias=None, mlp_bias=True)
MISTRAL = Family("MistralForCausalLM", "mistral", context=131072, kv_heads=8, sliding="every", sliding_window=4096)
QWEN2 = Family(
    "Qwen2ForCausalLM",
    "qwen2",
    context=32768,
    kv_heads=32,
    qkv_bias=True,
    sliding="some",
    sliding_window=4096,
    max_window_layers=28,
)
QWEN3 = Family(
    "Qwen3ForCausalLM",
    "qwen3",
    context=32768,
    kv_heads=32,
    head_dim=128,
    qkv_bias=None,
    qk_norm=True,
    sliding="some",
    sliding_window=4096,
    max_window_layers=28,
)

FAMILIES = {family.architecture: family for family in (LLAMA, MISTRAL, QWEN2, QWEN3)}
BY_MODEL_TYPE = {family.model_type: family for family in FAMILIES.values()}


@dataclass(frozen=True)
class GgufFamily:
    """A value of GGUF's `general.architecture`. `paired` says that query and key rows are stored in interleaved pairs.

    llama.cpp's converter reorders them for `llama` (`LlamaModel.undo_permute`, weights and biases) and leaves them as Hugging Face has
    them for `qwen2` and `qwen3` (`Qwen2Model.modify_tensors` only renames), whose rotary embedding it computes in halves.
    """

    family: Family
    paired: bool


# Mistral has no name of its own there: its converter writes `llama`.
GGUF_FAMILIES = {
    "llama": GgufFamily(LLAMA, paired=True),
    "qwen2": GgufFamily(QWEN2, paired=False),
    "qwen3": GgufFamily(QWEN3, paired=False),
}
