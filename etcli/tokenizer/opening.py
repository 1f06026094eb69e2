"""Opening a tokenizer of any kind, told by content: a `tokenizer.model` may be SentencePiece, tiktoken ranks or JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.common.gguf_file import MAGIC
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.gguf import open_gguf
from etcli.tokenizer.hf import TOKENIZER, open_json
from etcli.tokenizer.modelfile import MODEL
from etcli.tokenizer.neighbours import Neighbours, read_neighbours
from etcli.tokenizer.pieces import open_pieces
from etcli.tokenizer.ranks import LINE, open_ranks

_OPENERS: Mapping[str, Callable[[Path, Neighbours], Tokenizer]] = {
    "hf": open_json,
    "tiktoken": open_ranks,
    "sentencepiece": open_pieces,
}
_TEKKEN = "tekken.json"
_AGAIN = "Fetch the real file: git lfs pull (in the clone), or download it again from its publisher."


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, of a folder (Hugging Face's, Meta's, a bundle's), or of a tokenizer file with its neighbours.

    Of a folder, `tokenizer.json` wins over `tokenizer.model`; where the two differ in size, a remark says so. A file of weights stands for its folder.

    Raises:
        CheckpointError: `tokenizer.missing`, `tokenizer.unsupported` (another kind, by name), `tokenizer.invalid` or `checkpoint.lfs_pointer`.
    """
    try:
        if path.is_dir():
            return _open_folder(path)
        start = _start(path)
        if start[:4] == MAGIC:
            return open_gguf(path)
        if _is_weights(start):
            return _open_folder(path.parent)
        return _open_file(path, read_neighbours(path.parent))
    except OSError as error:
        raise CheckpointError(
            f"the tokenizer cannot be read: {error.strerror or error}",
            code="tokenizer.missing",
            hint="Name a GGUF file, a folder with tokenizer.json or tokenizer.model, or a bundle.",
            file=path,
        ) from None


def _open_folder(folder: Path) -> Tokenizer:
    beside = read_neighbours(folder)
    found, model = folder / TOKENIZER, folder / MODEL
    if found.is_file():
        tokenizer = _open_file(found, beside)
        if model.is_file():
            _compare(tokenizer, model, beside)
        return tokenizer
    if model.is_file():
        return _open_file(model, beside)
    hint = "Fetch it too, from where the weights are from."
    if (folder.parent / MODEL).is_file() and (folder / "params.json").is_file():
        hint = f"Meta's download puts it into the folder above: cp {folder.parent / MODEL} {folder}"
    if (folder / _TEKKEN).is_file():
        raise CheckpointError(
            f"{folder.name} has its tokenizer in Mistral's own form alone ({_TEKKEN}), which is not supported",
            code="tokenizer.unsupported",
            hint=f"Put the {TOKENIZER} of the model's Hugging Face form beside it.",
            file=folder / _TEKKEN,
        )
    raise CheckpointError(
        f"{folder.name} has no {TOKENIZER} and no {MODEL}", code="tokenizer.missing", hint=hint, file=folder
    )


def _open_file(path: Path, beside: Neighbours) -> Tokenizer:
    start = _start(path)
    kind = _kind(start)
    if kind in _OPENERS:
        return _OPENERS[kind](path, beside)
    if kind == "lfs":
        raise CheckpointError(
            f"{path.name} is a Git LFS pointer, not the file itself",
            code="checkpoint.lfs_pointer",
            hint=_AGAIN,
            file=path,
        )
    raise CheckpointError(
        f"{path.name} is {kind}", code="tokenizer.invalid", hint=f"It should be a tokenizer. {_AGAIN}", file=path
    )


def _compare(tokenizer: Tokenizer, model: Path, beside: Neighbours) -> None:
    """Leave a remark where the `tokenizer.model` beside a `tokenizer.json` is of another vocabulary."""
    what = "cannot be read"
    with contextlib.suppress(CheckpointError):
        other = _open_file(model, beside)
        if other.vocab_size == tokenizer.vocab_size:
            return
        what = f"has {other.vocab_size:,} tokens"
    tokenizer.remarks = (
        *tokenizer.remarks,
        f"{TOKENIZER} is used, with {tokenizer.vocab_size:,} tokens; the {MODEL} beside it {what}",
    )


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _is_weights(start: bytes) -> bool:
    """Whether a file is a zip archive or a pickle (`.pth`, `.bin`) or safetensors, whose header's length and `{` come first."""
    pickled = start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    return pickled or start[:4] == b"PK\x03\x04" or (start[8:9] == b"{" and start[7] == 0)


def _kind(start: bytes) -> str:
    """What a tokenizer file is, from its first bytes: a kind, `lfs`, or what it is instead."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"version https://git-lfs"):
        return "lfs"
    if LINE.match(start):
        return "tiktoken"
    if text[:1] == b"{":
        return "hf"
    # Field 1 of a ModelProto, a piece, whose field 1 is a text.
    if start[:1] == b"\n" and b"\n" in start[2:4]:
        return "sentencepiece"
    if text[:15].lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "a web page, as a failed download leaves it"
    if not start:
        return "empty"
    return "of no known kind of tokenizer"
