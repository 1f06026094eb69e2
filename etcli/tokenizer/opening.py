"""Opening a tokenizer of any kind, told by content."""

from __future__ import annotations

import re
from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.common.gguf_file import MAGIC
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.gguf import open_gguf
from etcli.tokenizer.hf import TOKENIZER, open_folder

_SAVE = (
    "Save it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes tokenizer.json."
)


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, of a Hugging Face or bundle's folder, or of a `tokenizer.json` with its neighbours.

    Raises:
        CheckpointError: `tokenizer.missing`, `tokenizer.unsupported` (another kind, by name) or `tokenizer.invalid`.
    """
    try:
        if path.is_dir():
            if (path / TOKENIZER).is_file():
                return open_folder(path)
            raise _without(path)
        with path.open("rb") as file:
            start = file.read(4096)
        if start[:4] == MAGIC:
            return open_gguf(path)
        if path.name == TOKENIZER:
            return open_folder(path.parent)
        raise CheckpointError(
            f"{path.name} is {_kind(start)}, which is not supported",
            code="tokenizer.unsupported",
            hint=_SAVE,
            file=path,
        )
    except OSError as error:
        raise CheckpointError(
            f"the tokenizer cannot be read: {error.strerror or error}",
            code="tokenizer.missing",
            hint="Name a GGUF file, a Hugging Face folder with tokenizer.json, or a bundle.",
            file=path,
        ) from None


def _without(folder: Path) -> CheckpointError:
    model = folder / "tokenizer.model"
    if model.is_file():
        with model.open("rb") as file:
            kind = _kind(file.read(4096))
        return CheckpointError(
            f"{folder.name} has no tokenizer.json, only tokenizer.model, {kind}, which is not supported",
            code="tokenizer.unsupported",
            hint=_SAVE,
            file=model,
        )
    return CheckpointError(
        f"{folder.name} has no tokenizer.json", code="tokenizer.missing", hint=f"Fetch it too. {_SAVE}", file=folder
    )


def _kind(start: bytes) -> str:
    """What a tokenizer file is, from its first bytes."""
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer"
    if re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", start):
        return "a tiktoken vocabulary"
    if start[:1] == b"\n" and b"<unk>" in start[:64]:
        return "a SentencePiece model"
    if start.lstrip()[:1] == b"{":
        return "JSON of another name than tokenizer.json"
    return "a file of no known tokenizer"
