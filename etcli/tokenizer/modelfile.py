"""Tokenizer files read within bounds, and a `tokenizer.model` written with what has to stand beside it."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.common.files import write_atomically
from etcli.manifests.tokenizer import TokenizerSettings
from etcli.tokenizer import template_header
from etcli.tokenizer.base import SavedTokenizer
from etcli.tokenizer.neighbours import SETTINGS, TEMPLATE

MODEL = "tokenizer.model"


def save_model(folder: Path, data: bytes, settings: TokenizerSettings, chat_template: str | None) -> SavedTokenizer:
    """Write a `tokenizer.model` as it is, what is to be known beside it, and the chat template."""
    write_atomically(folder / MODEL, data)
    settings.write(folder / SETTINGS)
    if chat_template is None:
        return SavedTokenizer(folder / MODEL, None, folder / SETTINGS)
    write_atomically(folder / TEMPLATE, template_header.with_header(chat_template, settings.special_tokens))
    return SavedTokenizer(folder / MODEL, folder / TEMPLATE, folder / SETTINGS)


def bounded_bytes(path: Path, limit: int) -> bytes:
    """The content of `path`.

    Raises:
        CheckpointError: `tokenizer.invalid`, it is larger than `limit` bytes.
    """
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise CheckpointError(
            f"{path.name} has more than the {limit:,} bytes that a tokenizer may have",
            code="tokenizer.invalid",
            hint="It is not the tokenizer of this model; fetch it again from where the weights are from.",
            file=path,
        )
    return data
