"""Model-parallel shards: every file has a part of each matrix, and the parts are put together when the tensor is read.

Which axis: `ColumnParallelLinear` cuts the output features, `RowParallelLinear` the input features, as in `llama_models/llama3/model.py`; norms
are in every shard. Llama 2's embedding is cut along its columns (`ParallelEmbedding`), Llama 3's along its rows (`VocabParallelEmbedding`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.layout import EMBEDDING, HEAD, NORM
from etcli.checkpoint.stored import StoredTensor
from etcli.common.errors import CheckpointError, Problems
from etcli.output.units import counted

_COLUMNS = ("o_proj.weight", "down_proj.weight")
_SHOWN = 3


@dataclass(frozen=True)
class Piece:
    """A tensor of the network as one or more stored tensors, one after another along `axis`; `copies` are the same in other shards."""

    parts: tuple[StoredTensor, ...]
    axis: int = 0
    copies: tuple[StoredTensor, ...] = ()

    @property
    def dtype(self) -> str:
        """The stored type, the same in all parts."""
        return self.parts[0].dtype

    @property
    def info(self) -> TensorInfo:
        """Shape of the whole, stored type, bytes of all parts."""
        shape = list(self.parts[0].shape)
        if len(self.parts) > 1:
            shape[self.axis] = sum(part.shape[self.axis] for part in self.parts)
        return TensorInfo(tuple(shape), self.dtype, sum(part.nbytes for part in self.parts))


def merged(
    path: Path, named: Mapping[str, Sequence[StoredTensor]], shards: int, problems: Problems
) -> dict[str, Piece]:
    """The tensors by canonical name, put together out of `shards` parts each; what does not fit goes into `problems`."""
    pieces: dict[str, Piece] = {}
    lost: list[str] = []
    unlike: list[str] = []
    for name, parts in named.items():
        if len(parts) != shards:
            lost.append(parts[0].name)
            continue
        axis = _axis(name, named) if shards > 1 else 0
        if len({(part.dtype, part.shape) for part in parts}) > 1:
            unlike.append(parts[0].name)
            continue
        pieces[name] = Piece((parts[0],), copies=tuple(parts[1:])) if axis is None else Piece(tuple(parts), axis)
    for names, what in (
        (lost, "not every shard holds {} exactly once"),
        (unlike, "the shards disagree on shape or type of {}"),
    ):
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            problems.add(
                CheckpointError.problem(
                    f"{what.format(counted(len(names), 'tensor'))}: {shown}"
                    if shards > 1
                    else f"tensors have the same name once prefixes are gone: {shown}",
                    code="checkpoint.shard_mismatch",
                    hint="The shards are not of one checkpoint; fetch the folder again."
                    if shards > 1
                    else "The file holds a network twice; save one state dict by itself.",
                    file=path,
                )
            )
    return pieces


def _axis(name: str, named: Mapping[str, Sequence[StoredTensor]]) -> int | None:
    """The axis that a tensor is cut along, None for one that every shard holds whole."""
    shape = named[name][0].shape
    if len(shape) != 2:
        return None
    if name == EMBEDDING:
        return _embedding_axis(named)
    return 1 if name.endswith(_COLUMNS) else 0


def _embedding_axis(named: Mapping[str, Sequence[StoredTensor]]) -> int | None:
    """Told by shapes: as wide as the final norm means cut along rows, unless it has all the rows that the head's parts have together."""
    embedding, norm, head = (named.get(name, ()) for name in (EMBEDDING, NORM, HEAD))
    if not norm or norm[0].shape != embedding[0].shape[1:]:
        return 1
    whole = head and len(head[0].shape) == 2 and embedding[0].shape[0] == sum(part.shape[0] for part in head)
    return None if whole else 0
