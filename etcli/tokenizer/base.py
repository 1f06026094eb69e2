"""The Tokenizer interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from etcli.manifests.tokenizer import TokenizerKind


class TextStream(Protocol):
    """Turns ids into text as they come, holding back bytes that do not yet make a whole character."""

    def push(self, token: int) -> str:
        """The text that `token` completes, possibly empty."""

    def finish(self) -> str:
        """What is left, with a replacement character for a broken end."""


@dataclass(frozen=True)
class SavedTokenizer:
    """The files that a tokenizer was written to: its own, the chat template and the settings, where there are any."""

    file: Path
    chat_template: Path | None = None
    settings: Path | None = None


class Tokenizer(Protocol):
    """A tokenizer of any kind. Ids are of the model's vocabulary.

    `remarks` say what was assumed or left aside without being wrong: a sentence each, for `validate` and `export` to show.
    """

    remarks: tuple[str, ...]

    @property
    def kind(self) -> TokenizerKind:
        """How its file is written: `hf` (tokenizer.json), `tiktoken` (ranks) or `sentencepiece`."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included: one more than the largest."""

    @property
    def bos_id(self) -> int | None:
        """The id put before a plain text, or None where the tokenizer adds none."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end an answer as far as the tokenizer's own files tell, in rising order."""

    @property
    def stop_sources(self) -> Mapping[int, tuple[str, ...]]:
        """For each of `stop_ids`, what names it: a file, or a token's well-known name."""

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template: an untrusted program, rendered by `tokenizer/chat.py` alone."""

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts that chat templates know by name: `bos_token`, `eos_token`, `unk_token`, `pad_token`, as far as there are any."""

    @property
    def control_texts(self) -> tuple[str, ...]:
        """Texts that `encode(special=True)` turns into one special token each, such as `<|im_start|>`."""

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Ids of `text`.

        Args:
            special: whether text such as `<|im_start|>` stands for its token (rendered templates) or for its letters (a user's words).
            bos: whether to put `bos_id` first, where there is one and `text` does not already start with it.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special tokens left out."""

    def stream(self) -> TextStream:
        """A fresh streaming decoder."""

    def save(self, folder: Path) -> SavedTokenizer:
        """Write the tokenizer into `folder`: the file it came from byte for byte where there is one. Equal tokenizers give equal bytes."""


def control_text(tokenizer: Tokenizer, token: int) -> str | None:
    """The text that stands for the control token of id `token`; None where the id is no control token's."""
    return next((text for text in tokenizer.control_texts if tokenizer.encode(text, special=True) == [token]), None)
