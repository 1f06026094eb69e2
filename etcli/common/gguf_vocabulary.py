"""Which ids of a GGUF file's vocabulary start a text and end an answer: asked for by the checkpoint and by the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# llama.cpp's `llama-vocab.cpp`: pre-tokenizers whose files, lacking the key, put the first token before a text.
LLAMA3_PRE = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3"})
TEKKEN_PRE = "tekken"

# Control tokens that end a turn whatever the keys say, as llama.cpp finds them by name; only where a file has such a control token.
_ENDS = frozenset({"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"})
CONTROL = 3


def token_id(metadata: Mapping[str, Any], name: str) -> int | None:
    """The id under `tokenizer.ggml.<name>_token_id`, if it is one of the vocabulary."""
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < token_count(metadata)
    return value if known else None


def token_count(metadata: Mapping[str, Any]) -> int:
    """Number of tokens in the file's vocabulary, 0 where it has none."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, list) else 0


def added_bos_id(metadata: Mapping[str, Any]) -> int | None:
    """The id that is put before a plain text, or None where the file says that none is."""
    default = metadata.get("tokenizer.ggml.model") == "llama" or str(
        metadata.get("tokenizer.ggml.pre")
    ) in LLAMA3_PRE | {TEKKEN_PRE}
    return token_id(metadata, "bos") if metadata.get("tokenizer.ggml.add_bos_token", default) is True else None


def stop_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids that end an answer, ascending: end of text, of turn and of message, by key or by the name of a control token."""
    return tuple(sorted(stop_sources(metadata)))


def stop_sources(metadata: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """For each of `stop_ids`, what names it: a key of the file, or a control token's well-known name."""
    found: dict[int, tuple[str, ...]] = {}
    for name in ("eos", "eot", "eom"):
        index = token_id(metadata, name)
        if index is not None:
            found[index] = (*found.get(index, ()), f"tokenizer.ggml.{name}_token_id")
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(types, list) and len(tokens) == len(types):
        for index, kind in enumerate(types):
            if kind == CONTROL and tokens[index] in _ENDS:
                found[index] = (*found.get(index, ()), f"the token {tokens[index]}")
    return found
