"""`tokenizer_settings.json`: what a tokenizer file of a bundle does not say itself."""

from __future__ import annotations

from typing import Literal

import pydantic

from etcli.manifests.base import Manifest, Part

TokenizerKind = Literal["hf", "tiktoken", "sentencepiece"]


class AddedToken(Part):
    """A token beside the file's own vocabulary, or one of it that is treated in another way.

    `special` tokens stand for control (a turn's end) and give no text; `lstrip` and `rstrip` swallow white space before and after.
    """

    id: int = pydantic.Field(ge=0)
    text: str = pydantic.Field(min_length=1)
    special: bool
    lstrip: bool = False
    rstrip: bool = False


class TokenizerSettings(Manifest):
    """Stands beside a `tokenizer.model`, whose formats know nothing of chats.

    `prefix` says which runs of text between special tokens get SentencePiece's dummy space: the `first` of a text, or `always`.
    """

    kind: TokenizerKind
    bos_id: int | None = None
    stop_ids: tuple[int, ...] = ()
    special_tokens: dict[str, str] = pydantic.Field(default_factory=dict)
    added: tuple[AddedToken, ...] = ()
    prefix: Literal["first", "always"] = "first"
