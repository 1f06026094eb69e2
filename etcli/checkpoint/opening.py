"""Opening whatever the user has: the format is told by content, never by a name's ending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etcli.checkpoint import gguf, meta, pytorch, safetensors, weights_file
from etcli.checkpoint.adapter import examine_adapter
from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.foreign import unknown_format
from etcli.common.errors import CheckpointError, Problem


@dataclass(frozen=True)
class Format:
    """A kind of checkpoint: one module, one entry of `FORMATS`.

    `recognises` looks at the first bytes or file names only; `examine` gives the checkpoint, or every problem its headers show.
    """

    name: str
    recognises: Callable[[Path], bool]
    examine: Callable[[Path], tuple[Checkpoint | None, list[Problem]]]


FORMATS: tuple[Format, ...] = (
    Format(gguf.NAME, gguf.recognises, gguf.examine),
    Format(safetensors.NAME, safetensors.recognises, safetensors.examine),
    Format(pytorch.NAME, pytorch.recognises, pytorch.examine),
    Format(meta.NAME, meta.recognises, meta.examine),
    Format(weights_file.NAME, weights_file.recognises, weights_file.examine),
)


def recognised(path: Path) -> bool:
    """Whether first bytes or file names are those of a checkpoint, good or not; False where `path` cannot be read."""
    try:
        return any(kind.recognises(path) for kind in FORMATS)
    except OSError:
        return False


def examine(path: Path, adapter: Path | None = None) -> tuple[Checkpoint | None, list[Problem]]:
    """The checkpoint at `path`, or everything that its headers show to be wrong. Reads no tensor, imports no torch.

    Args:
        adapter: folder of a LoRA adapter to merge into it.
    """
    try:
        pipes = _pipes(path)
        if pipes is not None:
            return None, [pipes]
        found = next((kind.examine(path) for kind in FORMATS if kind.recognises(path)), None)
        if found is None:
            return None, [unknown_format(path)]
        checkpoint, _ = found
        return found if checkpoint is None or adapter is None else examine_adapter(adapter, checkpoint)
    except OSError as error:
        problem = CheckpointError.problem(
            f"the checkpoint cannot be read: {error.strerror or error}",
            code="checkpoint.unreadable",
            hint="Check that the file is there and that you may read it.",
            file=path,
        )
        return None, [problem]


def _pipes(path: Path) -> Problem | None:
    """The problem of a folder with pipes or devices in it, which nobody publishes and opening which may never end."""
    entries = path.iterdir() if path.is_dir() else ()
    found = sorted(entry.name for entry in entries if entry.exists() and not (entry.is_file() or entry.is_dir()))
    if not found:
        return None
    return CheckpointError.problem(
        f"{path.name} holds what is neither a file nor a folder: {', '.join(found[:4])}",
        code="checkpoint.unreadable",
        hint="Remove it; a checkpoint is files alone.",
        file=path,
    )


def open_checkpoint(path: Path, adapter: Path | None = None) -> Checkpoint:
    """The checkpoint at `path`, with the LoRA adapter merged if one is given, checked against its own configuration from headers alone.

    Raises:
        CheckpointError: with every problem found: not a checkpoint, cut off, of another architecture, tensors missing or of other
            shapes than the configuration asks for; an adapter that is none or does not fit.
    """
    checkpoint, problems = examine(path, adapter)
    if checkpoint is None:
        raise CheckpointError.many(problems)
    return checkpoint
