"""A LoRA adapter over a checkpoint: merged one tensor at a time while it is read, whatever format lies below.

Form: peft's `save_pretrained`, that is `adapter_config.json` and `adapter_model.safetensors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etcli.checkpoint.adapter_config import CONFIG, AdapterConfig, read_adapter_config
from etcli.checkpoint.base import Checkpoint, TensorInfo
from etcli.checkpoint.hashes import TensorHashes
from etcli.checkpoint.layout import EMBEDDING, HEAD, expected_shapes
from etcli.checkpoint.safetensors_header import read_safetensors_header
from etcli.checkpoint.stored import READABLE, StoredTensor, read_stored
from etcli.common.errors import CheckpointError, Problem, Problems
from etcli.common.hashing import value_sha256
from etcli.manifests.model import ModelConfig
from etcli.output.units import counted

if TYPE_CHECKING:
    import torch

WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
_NAME = re.compile(
    r"base_model\.model\.(?P<module>.+?)(?:\.modules_to_save(?:\.default)?)?\.(?P<leaf>(?:base_layer\.)?weight|lora_\w+)(?:\.default)?(?P<rest>\.\w+)?"
)
_KINDS = {
    "lora_A.weight": "a",
    "lora_B.weight": "b",
    "lora_embedding_A": "a",
    "lora_embedding_B": "b",
    "weight": "whole",
    "base_layer.weight": "whole",
}
_NAMED = 4


@dataclass
class _Change:
    """What an adapter does to one matrix: puts `whole` in its place, adds `scale * B @ A`, or both. `module` is the name without `.weight`.

    Both come where an embedding is a target: peft saves the base's own (`base_layer`) with the factors.
    """

    module: str
    a: StoredTensor | None = None
    b: StoredTensor | None = None
    whole: StoredTensor | None = None
    scale: float = 1.0

    @property
    def parts(self) -> list[StoredTensor]:
        return [part for part in (self.a, self.b, self.whole) if part is not None]


def examine_adapter(folder: Path, base: Checkpoint) -> tuple[AdaptedCheckpoint | None, list[Problem]]:
    """`base` with the adapter in `folder` merged, or every reason why they do not go together; from headers alone.

    The reasons have the codes `adapter.missing`, `adapter.config`, `adapter.unsupported`, `adapter.tensor` and `adapter.base`, besides those of
    a safetensors file that is damaged.
    """
    problems = Problems()
    missing = _missing(folder)
    if missing is not None:
        return None, [missing]
    if base.config.aqlm is not None:
        text = "its base model is quantised by AQLM, whose sums of codebook vectors have no place for what it adds"
        hint = (
            "Name the unquantised model as model.source, with the adapter. "
            "export.precision: 8da4w quantises the two together, and so does, for a demonstration, model.quantize: aqlm."
        )
        return None, [_problem(folder, text, "unsupported", hint=hint)]
    config = read_adapter_config(folder, problems)
    stored = problems.attempt(lambda: read_safetensors_header(folder / WEIGHTS))
    if config is None or stored is None:
        return None, problems.found
    changes = _changes(folder, config, stored, base.config, problems)
    for change in changes.values():
        problems.found.extend(_misfits(folder, config, change, base))
    for target in config.targets or ():
        if not any(_ends(name.removesuffix(".weight"), target) for name in base.tensors):
            problems.add(_problem(folder, f"its target {target} is no module of the network", "tensor"))
        elif not any(_ends(change.module, target) for change in changes.values()):
            problems.add(_problem(folder, f"it has no tensors for its target {target}", "tensor"))
    return (None if problems else AdaptedCheckpoint(base, folder, changes)), problems.found


def _missing(folder: Path) -> Problem | None:
    if not folder.is_dir():
        return _problem(
            folder, "it is not a folder", "missing", hint=f"Name the folder that holds {CONFIG} and {WEIGHTS}."
        )
    if (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file():
        return None
    if (folder / PICKLED).is_file() and not (folder / WEIGHTS).is_file():
        hint = "Save it again with peft: save_pretrained(..., safe_serialization=True)."
        return _problem(
            folder, f"its weights are pickled ({PICKLED}), which is not read for adapters", "unsupported", hint=hint
        )
    lost = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    hint = "Name the folder that peft's save_pretrained wrote."
    return _problem(folder, f"it lacks {' and '.join(lost)}", "missing", hint=hint)


def _changes(
    folder: Path, config: AdapterConfig, stored: Mapping[str, StoredTensor], network: ModelConfig, problems: Problems
) -> dict[str, _Change]:
    """What happens to which tensor, by canonical name; tensors that cannot be understood are problems."""
    expected = expected_shapes(network)
    found: dict[str, _Change] = {}
    strange: list[str] = []
    for name, tensor in stored.items():
        match = _NAME.fullmatch(name)
        kind = _KINDS.get(match["leaf"] + (match["rest"] or "")) if match else None
        target = f"{match['module']}.weight" if match else ""
        if match is None or kind is None or (target not in expected and target != HEAD):
            strange.append(name)
            continue
        change = found.setdefault(target, _Change(match["module"], scale=config.scale_of(match["module"])))
        setattr(change, kind, tensor)
    if strange:
        shown = ", ".join(name[:100] for name in strange[:_NAMED]) + (", ..." if strange[_NAMED:] else "")
        text = f"the network has nothing that {counted(len(strange), 'tensor')} could change: {shown}"
        problems.add(
            _problem(
                folder, text, "tensor", hint="The adapter is for another network, or of a kind that is not supported."
            )
        )
    if network.tied_embeddings and (HEAD in found or EMBEDDING in found):
        # peft changes the one and leaves the other, so that they are no longer tied.
        text = "it changes the embedding or the head, which are one in this network"
        hint = "Merge it with peft, and save the result with a head of its own (tie_word_embeddings: false)."
        problems.add(_problem(folder, text, "unsupported", hint=hint))
    found.pop(HEAD if network.tied_embeddings else "", None)
    return found


def _misfits(folder: Path, config: AdapterConfig, change: _Change, base: Checkpoint) -> list[Problem]:
    name = f"{change.module}.weight"
    info = base.tensors[name]
    problems = [
        _problem(
            folder, f"{part.name} is of the type {part.dtype}", "unsupported", hint=f"Supported: {', '.join(READABLE)}."
        )
        for part in change.parts
        if part.dtype not in READABLE
    ]
    if change.whole is not None:
        if change.whole.shape != info.shape:
            problems.append(_other_base(folder, change.whole, change.whole.shape, info.shape))
        if change.a is None and change.b is None:
            return problems
    if change.a is None or change.b is None:
        half = change.a or change.b
        return [*problems, _problem(folder, f"{half.name if half else name} comes without its other half", "tensor")]
    rank = config.rank_of(change.module)
    rows, columns = info.shape[::-1] if name == EMBEDDING else info.shape
    if len(change.a.shape) != 2 or len(change.b.shape) != 2 or (change.a.shape[0], change.b.shape[1]) != (rank, rank):
        text = f"{change.module} has factors of {list(change.b.shape)} and {list(change.a.shape)}, its rank is {rank}"
        problems.append(_problem(folder, text, "tensor", hint=f"{CONFIG} and {WEIGHTS} are not of one adapter."))
    elif (change.b.shape[0], change.a.shape[1]) != (rows, columns):
        problems.append(_other_base(folder, change.a, (change.b.shape[0], change.a.shape[1]), (rows, columns)))
    return problems


def _other_base(folder: Path, part: StoredTensor, found: tuple[int, ...], wanted: tuple[int, ...]) -> Problem:
    return _problem(
        folder,
        f"{part.name} is for a matrix of {list(found)}, the network's is {list(wanted)}",
        "base",
        hint="The adapter was trained on another base model; its adapter_config.json names it (base_model_name_or_path).",
    )


def _ends(module: str, target: str) -> bool:
    return module == target or module.endswith(f".{target}")


def _problem(folder: Path, what: str, code: str, *, hint: str | None = None) -> Problem:
    return CheckpointError.problem(
        f"the adapter {folder.name} does not fit: {what}"
        if code in ("tensor", "base")
        else f"the adapter {folder.name}: {what}",
        code=f"adapter.{code}",
        hint=hint or "Use the adapter with the model that it was trained on.",
        file=folder,
    )


class AdaptedCheckpoint:
    """A checkpoint with an adapter merged into it; implements `checkpoint.base.Checkpoint`."""

    def __init__(self, base: Checkpoint, folder: Path, changes: Mapping[str, _Change]) -> None:
        self._base, self._changes = base, changes
        self.adapter = folder
        self.path, self.format, self.config = base.path, base.format, base.config
        self.tensors: Mapping[str, TensorInfo] = base.tensors
        self.unused, self.quality = base.unused, base.quality
        self.remarks = (*base.remarks, f"the LoRA adapter {folder.name} changes {counted(len(changes), 'tensor')}")
        self._hashes = TensorHashes(folder / WEIGHTS)

    def read(self, name: str) -> torch.Tensor:
        """See `Checkpoint.read`: the base's tensor with the adapter's part added in float32."""
        change = self._changes.get(name)
        if change is None:
            return self._base.read(name)
        values = self._base.read(name) if change.whole is None else _stored(change.whole)
        return values if change.a is None else values.add_(self._added(name, change, slice(None)))

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """See `Checkpoint.read_rows`."""
        change = self._changes.get(name)
        if change is None:
            return self._base.read_rows(name, start, stop)
        whole = change.whole
        values = self._base.read_rows(name, start, stop) if whole is None else _stored(whole, start, stop)
        return values if change.a is None else values.add_(self._added(name, change, slice(start, stop)))

    def sha256(self, name: str) -> str:
        """See `Checkpoint.sha256`: over the base's hash and all that is added to it."""
        change = self._changes.get(name)
        if change is None:
            return self._base.sha256(name)
        parts: list[Any] = [
            self._hashes.sha256(part.name, part.file, part.offset, part.nbytes, part.info) for part in change.parts
        ]
        return value_sha256(
            [
                change.scale if change.a is not None else None,
                *parts,
                *([] if change.whole else [self._base.sha256(name)]),
            ]
        )

    def _added(self, name: str, change: _Change, rows: slice) -> torch.Tensor:
        assert change.a is not None  # noqa: S101 - both halves were there when the headers were examined
        assert change.b is not None  # noqa: S101
        a, b = _stored(change.a), _stored(change.b)
        # An embedding's factors are those of its transpose: peft looks rows up in the one and multiplies by the other.
        product = a.T[rows] @ b.T if name == EMBEDDING else b[rows] @ a
        return product.mul_(change.scale)


def _stored(tensor: StoredTensor, start: int = 0, stop: int | None = None) -> torch.Tensor:
    return read_stored(tensor, np.arange(tensor.shape[0])[start:stop])
