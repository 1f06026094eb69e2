"""What the quantiser measures activations on: chats and texts that ship with etcli, as ids of the checkpoint's own tokenizer.

The chats' answers were sampled from the default model, mistakes included. No prompt that a recipe or a test asks is among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etcli.common.errors import CheckpointError
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.chat import encode_prompt

FILE = Path(__file__).with_name("calibration.json")

LONGEST = 512
"""Tokens of one sequence."""

USUAL = 8_000
"""About how many tokens there are with a tokenizer of today's models."""

MOST = 10_000
"""Tokens of all together: what tokenizers with few pieces make of more is left out."""


def calibration_ids(tokenizer: Tokenizer, context_length: int) -> list[list[int]]:
    """The sequences for a network that attends over `context_length` positions, each of at most `LONGEST` ids.

    Chats go through the checkpoint's template; without one, or with one that fails, they are plain text.
    """
    found: list[list[int]] = []
    left = MOST
    for ids in _sequences(tokenizer, json.loads(FILE.read_bytes())):
        kept = ids[: min(LONGEST, context_length, left)]
        if not kept:
            break
        found.append(kept)
        left -= len(kept)
    return found


def _sequences(tokenizer: Tokenizer, document: dict[str, Any]) -> Iterator[list[int]]:
    # texts first: they are few, and of a small tokenizer not all chats find room
    for text in document["texts"]:
        yield tokenizer.encode(text, bos=True)
    template = tokenizer.chat_template is not None
    for chat in document["chats"]:
        prompt: list[int] | None = None
        if template:
            try:
                prompt = encode_prompt(tokenizer, chat["user"], chat=True, system=None)
            except CheckpointError:
                template = False
        if prompt is None:
            yield tokenizer.encode(f"{chat['user']}\n\n{chat['assistant']}", bos=True)
        else:
            yield [*prompt, *tokenizer.encode(chat["assistant"])]
