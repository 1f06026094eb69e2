"""The Checkpoint interface: one naming, one rope convention, tensors one at a time.

Names are Hugging Face's for Llama (`model.layers.0.self_attn.q_proj.weight`, `model.embed_tokens.weight`, `model.norm.weight`,
`lm_head.weight`); query and key rows are in rotate-half order whatever the file holds. A tied head has no `lm_head.weight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import Quality

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as its header describes it: logical shape, stored type (`Q4_1`, `BF16`) and stored size in bytes."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class Checkpoint(Protocol):
    """An opened checkpoint. Opening reads headers alone; it has been checked against its own configuration."""

    @property
    def path(self) -> Path:
        """The file or folder on this machine."""

    @property
    def format(self) -> str:
        """The name of one of `opening.FORMATS`, such as `gguf`, `safetensors`, `pytorch` or `meta`."""

    @property
    def config(self) -> ModelConfig:
        """The network's numbers."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the network, by canonical name."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Tensors of the file that the network does not take, by the file's own names."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was assumed or left aside without being wrong: a sentence each, for `validate`, `inspect` and `export` to show."""
        return ()

    @property
    def quality(self) -> Quality | None:
        """What the weights are good for, where it is less than usual; see `quality_remarks`."""
        return None

    def read(self, name: str) -> torch.Tensor:
        """One tensor in float32, contiguous, from the memory map.

        Raises:
            CheckpointError: no such tensor, or its bytes cannot be read.
        """

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows `start .. stop - 1` (along the first axis) of one tensor as `read` gives them, without memory for the others where the format allows.

        Raises:
            CheckpointError: as `read`.
        """

    def sha256(self, name: str) -> str:
        """Hash of the tensor's stored bytes, type and shape; changes whenever `read` could return something else.

        Raises:
            CheckpointError: the bytes cannot be read, or they contradict the configuration: a head of its own that differs from the
                embedding it is said to be tied to (`checkpoint.tied_head`), a norm that differs between shards (`checkpoint.shard_mismatch`).
        """
