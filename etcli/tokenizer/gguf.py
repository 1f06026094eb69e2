"""The vocabulary inside a GGUF file as a tokenizer.

Supported are GPT-2's byte-level BPE (`tokenizer.ggml.model: gpt2`) here and SentencePiece's (`llama`) in `gguf_pieces.py`. How byte-level BPE cuts
text before merging is told by `tokenizer.ggml.pre`; the rules are those of the models' published `tokenizer.json`, whose expressions llama.cpp's
`llama-vocab.cpp` lists under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing

from etcli.common.errors import CheckpointError
from etcli.common.gguf_file import read_gguf_header
from etcli.common.gguf_vocabulary import CONTROL, LLAMA3_PRE, TEKKEN_PRE, added_bos_id, stop_sources
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.gguf_pieces import chat_template, invalid_vocabulary, named_tokens, open_gguf_pieces
from etcli.tokenizer.hf import HfTokenizer

_UNKNOWN, _USER_DEFINED = 2, 4

_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt2(prefix_space: bool) -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=True)


def _single_digits(prefix_space: bool) -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2(prefix_space)])


def _split_by(pattern: str) -> Callable[[bool], PreTokenizer]:
    def build(prefix_space: bool) -> PreTokenizer:
        split = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated", invert=False)
        return pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)]
        )

    return build


PRE_TOKENIZERS: Mapping[str, Callable[[bool], PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _single_digits,
    "qwen2": _split_by(_QWEN2_SPLIT),
    TEKKEN_PRE: _split_by(_TEKKEN_SPLIT),
    **dict.fromkeys(sorted(LLAMA3_PRE), _split_by(_LLAMA3_SPLIT)),
}


def open_gguf(path: Path) -> Tokenizer:
    """The tokenizer inside the GGUF file `path`.

    Raises:
        CheckpointError: `tokenizer.unsupported` for another kind of vocabulary or way to cut text, by name; `tokenizer.invalid` for one
            that contradicts itself; `checkpoint.gguf` where the file cannot be read.
    """
    metadata = read_gguf_header(path).metadata
    tokens, types = _vocabulary(metadata, path)
    if metadata["tokenizer.ggml.model"] == "llama":
        return open_gguf_pieces(path, metadata, tokens, types)
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    if pre not in PRE_TOKENIZERS:
        raise CheckpointError(
            f"{path.name} cuts text in the way {pre!r}, which is not supported",
            code="tokenizer.unsupported",
            hint=f"Supported: {', '.join(PRE_TOKENIZERS)}. Use the model's Hugging Face folder, which has a tokenizer.json.",
            file=path,
        )
    inner = tokenizers.Tokenizer(_bpe(metadata, tokens, path, ignore_merges=pre in LLAMA3_PRE | {TEKKEN_PRE}))
    if pre == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = PRE_TOKENIZERS[pre](metadata.get("tokenizer.ggml.add_space_prefix") is True)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([_added(tokens[at], True) for at, kind in enumerate(types) if kind in (CONTROL, _UNKNOWN)])
    inner.add_tokens([_added(tokens[at], False) for at, kind in enumerate(types) if kind == _USER_DEFINED])
    bos = added_bos_id(metadata)
    if bos is not None:
        inner.post_processor = TemplateProcessing(single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)])
    return HfTokenizer(
        inner,
        bos_id=bos,
        stop_sources=stop_sources(metadata),
        special_tokens=named_tokens(metadata),
        chat_template=chat_template(metadata),
    )


def _vocabulary(metadata: Mapping[str, Any], path: Path) -> tuple[list[str], list[int]]:
    model = metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        kinds = {"bert": "WordPiece", "t5": "SentencePiece unigram", "rwkv": "RWKV"}
        what = f"a {kinds.get(model, model)} tokenizer ({model})" if isinstance(model, str) else "no tokenizer"
        raise CheckpointError(
            f"{path.name} holds {what}; of GGUF files byte-level BPE (gpt2) and SentencePiece BPE (llama) are supported",
            code="tokenizer.unsupported",
            hint="Use the model's Hugging Face folder, which has a tokenizer.json.",
            file=path,
        )
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise invalid_vocabulary(path, "it has no list of tokens")
    if types is None:
        types = [1] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise invalid_vocabulary(path, "tokens and their types are not of one number")
    seen: set[str] = set()
    for token in tokens:
        if token in seen:
            raise invalid_vocabulary(path, f"the token {token!r} stands twice")
        seen.add(token)
    return tokens, types


def _bpe(metadata: Mapping[str, Any], tokens: list[str], path: Path, *, ignore_merges: bool) -> models.BPE:
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(isinstance(merge, str) and " " in merge for merge in merges):
        raise invalid_vocabulary(path, "it has no list of merges")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        return models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=ignore_merges, fuse_unk=False)
    except Exception as error:  # the package raises plain Exception
        raise invalid_vocabulary(path, str(error)[:200]) from None


def _added(text: str, special: bool) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(text, special=special, normalized=False)
