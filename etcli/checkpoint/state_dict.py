"""The state dict inside of what was saved: by itself, or as `{"model": ...}` beside an optimizer and the like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etcli.checkpoint.dialects import dialect_of
from etcli.checkpoint.pickle_values import PickledTensor
from etcli.checkpoint.safetensors_header import read_safetensors_header
from etcli.checkpoint.stored import StoredTensor
from etcli.checkpoint.torch_file import read_torch_file, starts_as_torch_file
from etcli.common.errors import CheckpointError

_DEPTH = 3
_SHOWN = 4


def read_header(path: Path, remarks: list[str]) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file or of a file of `torch.save`, by the file's own names; told by content.

    Args:
        remarks: where to put what was left aside.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged (`read_safetensors_header`, `read_torch_file`) or holds no state dict (`checkpoint.state_dict`).
    """
    kind = weights_kind(path)
    if kind == "safetensors" or (kind is None and path.suffix == ".safetensors"):
        return read_safetensors_header(path)
    file = read_torch_file(path)
    if file.legacy:
        size = path.stat().st_size / 1e6
        remarks.append(
            f"{path.name} ({size:.1f} MB) is of the form before PyTorch 1.6, no zip archive; it is mapped like the newer form"
        )
    tensors, where = _state_dict(path, file.value)
    beside = [key for key in file.value if key != where] if where else []
    if beside:
        more = f" and {len(beside) - _SHOWN} more" if len(beside) > _SHOWN else ""
        remarks.append(f"of {path.name}, {where} is read; left aside: {', '.join(beside[:_SHOWN])}{more}")
    return {name: file.tensor(name, tensor) for name, tensor in tensors.items()}


def weights_kind(path: Path) -> str | None:
    """`safetensors` or `pytorch` by the first bytes of the file `path`, None for anything else."""
    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{" and int.from_bytes(start[:8], "little") < 1 << 32:
        return "safetensors"  # looked at first: the length of its header may well begin as a pickle does
    return "pytorch" if starts_as_torch_file(start) else None


def _state_dict(path: Path, value: Any) -> tuple[dict[str, PickledTensor], str]:
    """The tensors of the one mapping that speaks a dialect, and the outermost key that leads to it ("" for the value itself)."""
    level = [("", value)]
    first: tuple[dict[str, PickledTensor], str] | None = None
    for _ in range(_DEPTH):
        holders = [(where, _tensors(inner)) for where, inner in level]
        speaking = [(where, tensors) for where, tensors in holders if tensors and dialect_of(tensors)]
        if len(speaking) > 1:
            keys = ", ".join(where for where, _ in speaking[:_SHOWN])
            raise _no_state_dict(path, f"several networks ({keys})", "Save the one that you mean by itself.")
        if speaking:
            return speaking[0][1], speaking[0][0]
        first = first or next(((tensors, where) for where, tensors in holders if tensors), None)
        level = [
            (where or str(key), inner)
            for where, outer in level
            if isinstance(outer, dict)
            for key, inner in outer.items()
            if isinstance(inner, dict)
        ]
    if first is not None:
        return first  # of names that nobody knows, which are shown
    keys = ", ".join(map(str, list(value)[:_SHOWN])) if isinstance(value, dict) else type(value).__name__
    raise _no_state_dict(path, f"no state dict, but {keys or 'nothing'}", "Save model.state_dict().")


def _tensors(value: Any) -> dict[str, PickledTensor]:
    if not isinstance(value, dict):
        return {}
    return {
        name: tensor for name, tensor in value.items() if isinstance(name, str) and isinstance(tensor, PickledTensor)
    }


def _no_state_dict(path: Path, what: str, hint: str) -> CheckpointError:
    return CheckpointError(f"{path.name} holds {what}", code="checkpoint.state_dict", hint=hint, file=path)
