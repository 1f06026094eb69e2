"""A checkpoint whose tensors lie in files as they are: examined from headers, read and hashed one at a time.

What all formats but GGUF share: names of several dialects, shards that are parts of each tensor, interleaved query and key rows, a head
beside tied embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etcli.checkpoint.aqlm_tensors import aqlm_findings, turned
from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.dialects import DIALECTS, META, Dialect, dialect_of, foreign_names
from etcli.checkpoint.hashes import TensorHashes
from etcli.checkpoint.layout import EMBEDDING, HEAD, expected_shapes, layout_problems, stored_tensor, unused_problem
from etcli.checkpoint.rope import rotate_half_rows, unscaled_remark
from etcli.checkpoint.shards import Piece, merged
from etcli.checkpoint.stored import READABLE, StoredTensor, read_stored
from etcli.common.errors import CheckpointError, Problem, Problems
from etcli.common.hashing import value_sha256
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import Quality

if TYPE_CHECKING:
    import torch


@dataclass
class Weights:
    """What the headers of a checkpoint's files say. `parts` are the files' tensors: one mapping, or one a shard where every shard has a part
    of each tensor. `words` are the configuration's own words for those of `config.json`."""

    path: Path
    format: str
    parts: Sequence[Mapping[str, StoredTensor]]
    remarks: list[str] = field(default_factory=list)
    words: Mapping[str, str] = field(default_factory=dict)
    quality: Quality | None = None


ReadConfig = Callable[[Mapping[str, TensorInfo], Problems, list[str]], "ModelConfig | None"]
"""Gives the network's numbers, or None with the reasons in the second argument; the first holds the tensors by canonical name."""


def examine_weights(
    weights: Weights, read_config: ReadConfig, problems: Problems
) -> tuple[WeightsCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, added to `problems`."""
    path = weights.path
    names = {name for part in weights.parts for name in part}
    spoken, foreign = dialect_of(names), foreign_names(names)
    if spoken is None or foreign is not None:
        problems.add(_dialect_problem(path, foreign, sorted(names)))
        read_config({}, problems, weights.remarks)
        return None, problems.found
    dialect, plain = spoken
    named: dict[str, list[StoredTensor]] = {}
    for part in weights.parts:
        for name, tensor in part.items():
            known = dialect.canonical(plain[name])
            if known is not None:
                named.setdefault(known, []).append(tensor)
    pieces = merged(path, named, len(weights.parts), problems)
    other = next((kind for kind in DIALECTS if kind is not dialect and any(map(kind.sign.match, plain.values()))), None)
    if other is not None:
        problems.add(
            CheckpointError.problem(
                f"{path.name} holds tensors under {dialect.name} names and under {other.name}: two networks, or one twice",
                code="checkpoint.ambiguous",
                hint="Save the one that you mean by itself.",
                file=path,
            )
        )
    config = read_config({name: piece.info for name, piece in pieces.items()}, problems, weights.remarks)
    if config is None:
        return None, problems.found
    expected, pieces = expected_shapes(config), turned(config, pieces, weights.remarks)
    infos = {name: piece.info for name, piece in pieces.items()}
    found, settled = aqlm_findings(config, infos, path)
    # what could not be put together, or contradicts AQLM's configuration, has been named: it is neither missing nor of another shape
    broken = [name for name in expected if name in settled or (name in named and name not in pieces)]
    found += layout_problems(config, infos | {name: TensorInfo(expected[name], "", 0) for name in broken}, path)
    spare = settled | ({HEAD} if config.tied_embeddings else set())
    extra = unused_problem(config, [name for name in pieces if name not in expected and name not in spare], path)
    found += [extra] if extra else []
    problems.found.extend(_worded(dialect.spoken(problem), weights.words) for problem in found)
    numbers = [name for name in expected if name in pieces and not name.endswith(".codes")]
    for kind in sorted({pieces[name].dtype for name in numbers} - set(READABLE)):
        problems.add(
            CheckpointError.problem(
                f"{path.name} holds tensors of the type {kind}, which is not supported",
                code="checkpoint.dtype",
                hint=f"Supported types: {', '.join(READABLE)}. Save the model in one of them.",
                file=path,
            )
        )
    return (None if problems else WeightsCheckpoint(weights, config, dialect, pieces)), problems.found


def _worded(problem: Problem, words: Mapping[str, str]) -> Problem:
    hint = problem.hint or ""
    for known, own in words.items():
        hint = hint.replace(known, own)
    return replace(problem, hint=hint)


def _dialect_problem(path: Path, foreign: str | None, names: Sequence[str]) -> Problem:
    if not names:
        return CheckpointError.problem(
            f"{path.name} holds no tensor", code="checkpoint.empty", hint="Fetch it again, or save it again.", file=path
        )
    shown = ", ".join(name[:60] for name in names[:3]) + (", ..." if len(names) > 3 else "")
    style = f"in another style: {foreign}" if foreign else f"of no known style ({shown})"
    return CheckpointError.problem(
        f"the tensors of {path.name} have names {style}",
        code="checkpoint.dialect",
        hint="Known are the names of Hugging Face, Meta and torchtune. Use the Hugging Face form of the model.",
        file=path,
    )


class WeightsCheckpoint:
    """Implements `checkpoint.base.Checkpoint`."""

    def __init__(self, weights: Weights, config: ModelConfig, dialect: Dialect, pieces: Mapping[str, Piece]) -> None:
        self.path, self.format, self.config = weights.path, weights.format, config
        self.quality = weights.quality
        self._pieces = {name: pieces[name] for name in expected_shapes(config)}
        self.tensors: Mapping[str, TensorInfo] = {name: piece.info for name, piece in self._pieces.items()}
        taken = {part.name for piece in self._pieces.values() for part in piece.parts}
        self.unused = tuple(sorted({name for part in weights.parts for name in part} - taken))
        # Qwen's own code rotates as Hugging Face does, and so does torchtune for it.
        self._interleaved = dialect.interleaved and not config.architecture.startswith("Qwen")
        self._spare_head = self._head_beside_tied(pieces)
        remarks = [*weights.remarks, *filter(None, [unscaled_remark(config)])]
        if dialect is META and not weights.words:
            remarks.append(
                f"the tensors of {weights.path.name} have Meta's names, so query and key rows are taken to be in Meta's order; "
                "converters that only rename (ExecuTorch's) leave them in Hugging Face's: then use the folder that they read"
            )
        if self._spare_head is not None:
            own = self._spare_head.parts[0].name
            remarks.append(
                f"{own} is left aside for the embedding that the head is tied to; export checks that the two are equal"
            )
        self.remarks = tuple(remarks)
        used = [*self._pieces.values(), *([self._spare_head] if self._spare_head else [])]
        self._hashes = TensorHashes(*sorted({part.file for piece in used for part in (*piece.parts, *piece.copies)}))

    def read(self, name: str) -> torch.Tensor:
        """See `Checkpoint.read`. Query and key rows come in rotate-half order."""
        values = self.read_rows(name, 0, stored_tensor(self._pieces, name, self.path).info.shape[0])
        if name.endswith(".scales") and not values.any():
            raise CheckpointError(
                f"{name} holds nothing but zeros, with which the linear would give zeros for everything",
                code="checkpoint.aqlm_scales",
                hint="The tensor is damaged or was converted wrongly: fetch the checkpoint again, and compare its sha256.",
                file=self.path,
            )
        return values

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """See `Checkpoint.read_rows`."""
        import torch

        piece = stored_tensor(self._pieces, name, self.path)
        rows, heads = np.arange(piece.info.shape[0]), self._interleaved_heads(name)
        rows = (rotate_half_rows(rows, heads) if heads else rows)[start:stop]
        if piece.axis == 1:
            return torch.cat([read_stored(part, rows) for part in piece.parts], dim=1)
        if len(piece.parts) == 1:
            return read_stored(piece.parts[0], rows)
        values, first = torch.empty((len(rows), *piece.info.shape[1:])), 0
        for part in piece.parts:
            here = np.flatnonzero((rows >= first) & (rows < first + part.shape[0]))
            if len(here):
                values[torch.from_numpy(here)] = read_stored(part, rows[here] - first)
            first += part.shape[0]
        return values

    def sha256(self, name: str) -> str:
        """See `Checkpoint.sha256`."""
        piece = stored_tensor(self._pieces, name, self.path)
        digest = self._stored_sha256(name, piece)
        for copy in piece.copies:
            if self._stored_sha256(f"{name}#{copy.file.name}", Piece((copy,))) != digest:
                raise CheckpointError(
                    f"{copy.name} differs between {piece.parts[0].file.name} and {copy.file.name}, though every shard should have the same",
                    code="checkpoint.shard_mismatch",
                    hint="The shards are not of one checkpoint; fetch the folder again.",
                    file=copy.file,
                )
        if name == EMBEDDING and self._spare_head is not None and self._stored_sha256(HEAD, self._spare_head) != digest:
            raise CheckpointError(
                f"{self._spare_head.parts[0].name} differs from the embedding, though the configuration ties the two",
                code="checkpoint.tied_head",
                hint="If the model has a head of its own, say tie_word_embeddings: false in config.json. If it has not, remove that tensor.",
                file=self._spare_head.parts[0].file,
            )
        return digest

    def _stored_sha256(self, name: str, piece: Piece) -> str:
        digests = [
            self._hashes.sha256(f"{name}#{index}" if index else name, part.file, part.offset, part.nbytes, part.info)
            for index, part in enumerate(piece.parts)
        ]
        how: list[object] = [piece.axis if len(digests) > 1 else 0, self._interleaved_heads(name)]
        how += [[part.strides, part.big_endian] for part in piece.parts if part.strides or part.big_endian]
        return digests[0] if len(digests) == 1 and how == [0, 0] else value_sha256([digests, how])

    def _interleaved_heads(self, name: str) -> int:
        match = re.search(r"self_attn\.([qk])_(proj|norm)\.", name) if self._interleaved else None
        if match is None:
            return 0
        if match[2] == "norm":
            return 1
        return self.config.num_heads if match[1] == "q" else self.config.num_kv_heads

    def _head_beside_tied(self, pieces: Mapping[str, Piece]) -> Piece | None:
        """A head of its own beside tied embeddings, unless both are the same place of the same file, as `torch.save` writes tied tensors."""
        head = pieces.get(HEAD) if self.config.tied_embeddings else None
        if head is None or [part.same_bytes for part in head.parts] == [
            part.same_bytes for part in self._pieces[EMBEDDING].parts
        ]:
            return None
        return head
