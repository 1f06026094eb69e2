"""The numbers that make a Llama-family network: read from a checkpoint, carried in the bundle."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from etcli.manifests.base import Part

MAX_LAYERS = 4096
"""Far above every network there is; a number beyond it is a damaged file's, and would cost memory for each layer that it claims."""


class RopeConfig(Part):
    """Rotary embedding. `factor` and the fields after it apply to `linear` and `llama3` scaling as in Hugging Face configs."""

    theta: float = pydantic.Field(gt=0)
    kind: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


AQLM_GROUP = 8
"""Inputs of one output that a code of AQLM stands for."""

AQLM_ENTRIES = 256
"""Vectors of a codebook of AQLM: codes have 8 bits."""

_KEPT = r"^model\.layers\.(0|[1-9][0-9]{0,3})\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)$"


class AqlmConfig(Part):
    """How the linears of the layers are quantised by AQLM: one scale an output, codes of 8 bits for groups of 8 inputs.

    `codebooks` is how many vectors are added up for a group (2: 2x8, 1: 1x8). `kept` holds the canonical names of the linears in layers that
    are not quantised, as `model.layers.0.self_attn.q_proj`, sorted. Embedding, norms and head never are.
    """

    codebooks: Literal[1, 2]
    kept: tuple[Annotated[str, pydantic.Field(pattern=_KEPT)], ...] = ()

    @pydantic.field_validator("kept")
    @classmethod
    def _in_order(cls, kept: tuple[str, ...]) -> tuple[str, ...]:
        if list(kept) != sorted(set(kept)):
            raise ValueError("the names are not sorted, or one stands there twice")
        return kept

    @property
    def scheme(self) -> str:
        """Codebooks by bits of a code, as the names of published models have it: `2x8`."""
        return f"{self.codebooks}x8"


class ModelConfig(Part):
    """A Llama-family network in Hugging Face terms.

    `attention_bias` is that of the query, key and value projections, `attention_output_bias` that of the output projection; `qk_norm` says
    that queries and keys are normalised over the head dim before rotary embedding. `sliding_window` is how many positions attention reaches
    over, None for all of them. `aqlm` is None where the weights of the layers are plain matrices. `stop_ids` unites the end ids of every
    source in the checkpoint, `bos_id` is None where the tokenizer adds none.
    """

    architecture: str
    hidden_size: int = pydantic.Field(gt=0)
    intermediate_size: int = pydantic.Field(gt=0)
    num_layers: int = pydantic.Field(gt=0, le=MAX_LAYERS)
    num_heads: int = pydantic.Field(gt=0)
    num_kv_heads: int = pydantic.Field(gt=0)
    head_dim: int = pydantic.Field(gt=0)
    vocab_size: int = pydantic.Field(gt=0)
    context_length: int = pydantic.Field(gt=0)
    sliding_window: int | None = pydantic.Field(default=None, gt=0)
    rms_norm_eps: float = pydantic.Field(gt=0)
    rope: RopeConfig
    tied_embeddings: bool
    attention_bias: bool = False
    attention_output_bias: bool = False
    qk_norm: bool = False
    mlp_bias: bool = False
    aqlm: AqlmConfig | None = None
    bos_id: int | None = None
    stop_ids: tuple[int, ...] = ()

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads")
        if self.head_dim % 2:
            raise ValueError(f"head dim {self.head_dim} is odd; rotary embedding needs pairs")
        return self
