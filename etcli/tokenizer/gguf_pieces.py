"""SentencePiece vocabularies inside GGUF files (`tokenizer.ggml.model: llama`), put together again as the model they were converted from.

GGUF keeps each piece with its score and SentencePiece's own number for its type. What it drops are the normalizer's settings; Llama's are known
(nothing normalised, white space kept, a dummy space in front unless `add_space_prefix` says no), and llama.cpp assumes the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etcli.common.errors import CheckpointError
from etcli.common.gguf_vocabulary import added_bos_id, stop_sources, token_id
from etcli.tokenizer.neighbours import Neighbours
from etcli.tokenizer.pieces import BYTE, CONTROL, UNKNOWN, SentencePieceTokenizer, model_proto, sentencepiece_tokenizer

_BPE = 2
_NAMED = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def open_gguf_pieces(
    path: Path, metadata: Mapping[str, Any], tokens: list[str], types: list[int]
) -> SentencePieceTokenizer:
    """The tokenizer of a GGUF file's SentencePiece vocabulary.

    Raises:
        CheckpointError: `tokenizer.invalid`, scores or types are not those of a SentencePiece model.
    """
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens) or not all(map(math.isfinite, scores)):
        raise invalid_vocabulary(path, "it has no list of scores, one for each token")
    proto = _proto(path, metadata, tokens, scores, types)
    if len([kind for kind in types if kind == UNKNOWN]) != 1:
        raise invalid_vocabulary(path, "it has not one token for unknown letters")
    beside = Neighbours(
        special_tokens=named_tokens(metadata),
        chat_template=chat_template(metadata),
        add_bos=added_bos_id(metadata) is not None,
    )
    return sentencepiece_tokenizer(
        path, proto.SerializeToString(deterministic=True), proto, beside, stop_sources=stop_sources(metadata)
    )


def _proto(path: Path, metadata: Mapping[str, Any], tokens: list[str], scores: list[float], types: list[int]) -> Any:
    proto = model_proto()()
    for index, (token, score, kind) in enumerate(zip(tokens, scores, types, strict=True)):
        if not UNKNOWN - 1 <= kind <= BYTE:
            raise invalid_vocabulary(path, f"the token {index} has the type {kind}")
        proto.pieces.add(piece=token, score=score, type=kind)
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type = _BPE
    trainer.vocab_size = len(tokens)
    trainer.byte_fallback = BYTE in types
    trainer.unk_id = types.index(UNKNOWN) if UNKNOWN in types else 0
    trainer.unk_piece = tokens[trainer.unk_id]
    for name in ("bos", "eos", "pad"):
        found = token_id(metadata, "padding" if name == "pad" else name)
        known = found is not None and types[found] == CONTROL
        setattr(trainer, f"{name}_id", found if known else -1)
        if known and found is not None:
            setattr(trainer, f"{name}_piece", tokens[found])
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    normalizer.remove_extra_whitespaces = metadata.get("tokenizer.ggml.remove_extra_whitespaces", False) is True
    normalizer.escape_whitespaces = True
    return proto


def named_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Texts of `bos_token` and its like, as far as the file names them."""
    ids = {text: token_id(metadata, name) for name, text in _NAMED.items()}
    tokens = metadata["tokenizer.ggml.tokens"]
    return {name: tokens[index] for name, index in ids.items() if index is not None}


def chat_template(metadata: Mapping[str, Any]) -> str | None:
    """The file's chat template: the only one, or the one of several that is called `default`."""
    for key in ("tokenizer.chat_template", "tokenizer.chat_template.default"):
        value = metadata.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def invalid_vocabulary(path: Path, what: str) -> CheckpointError:
    """The error of a vocabulary that contradicts itself."""
    return CheckpointError(
        f"the tokenizer inside {path.name} is wrong: {what}",
        code="tokenizer.invalid",
        hint="The file was made by a faulty converter; use another one.",
        file=path,
    )
