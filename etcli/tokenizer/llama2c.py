"""A SentencePiece tokenizer as the binary that llama2.c's reader takes (`tokenizer_type bpe` of the MediaTek runner).

The file, little-endian: four int32 (number of tokens, beginning-of-text id, end-of-text id, the longest token in bytes), then for each token a float32
score, an int32 length and so many bytes, in which a space is a space. The format, and how ExecuTorch's `Llama2cTokenizer` reads it: it puts the token of
one space before every text, takes each character's token or, for a character without one, the tokens 3 + byte; then it joins the neighbours whose
joint token has the highest score until there are none. A model for which that does not give SentencePiece's ids is refused: the runner would ask the
network with other tokens than it was trained on, and not say so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.tokenizer.pieces import BYTE, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, SentencePieceTokenizer

FILE = "tokenizer.bin"
_BPE = 2
_FIRST_BYTE = 3
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_NEVER = -1e11
"""The reader joins only to tokens above -1e10: what is no plain piece never comes out of a text."""


def llama2c_bytes(tokenizer: SentencePieceTokenizer, path: Path | None = None) -> bytes:
    """The binary of `tokenizer`, whose file is `path`.

    Raises:
        CheckpointError: `tokenizer.llama2c`: the reader would encode text in another way than the model; every reason is named.
    """
    reasons = list(_obstacles(tokenizer))
    if reasons:
        raise CheckpointError(
            f"this SentencePiece model cannot be written for the mtk runner: {'; '.join(reasons)}",
            code="tokenizer.llama2c",
            hint="Use run.runner: etcli, which is given token ids and needs no tokenizer on the device.",
            file=path,
        )
    tokens = list(_tokens(tokenizer))
    spec = tokenizer.proto.trainer_spec
    header = struct.pack("<4i", len(tokens), spec.bos_id, spec.eos_id, max(len(text) for text, _ in tokens))
    return header + b"".join(struct.pack("<fi", score, len(text)) + text for text, score in tokens)


def _tokens(tokenizer: SentencePieceTokenizer) -> Iterator[tuple[bytes, float]]:
    """Bytes and score of every id; a number that no token has becomes padding."""
    for piece in tokenizer.proto.pieces:
        yield piece.piece.replace(_SPACE, " ").encode(), piece.score if piece.type == NORMAL else _NEVER
    for index in range(tokenizer.size, tokenizer.vocab_size):
        yield (tokenizer.piece(index) or f"<pad{index}>").encode(), _NEVER


def _obstacles(tokenizer: SentencePieceTokenizer) -> Iterator[str]:
    proto = tokenizer.proto
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    types = [piece.type for piece in proto.pieces]
    if trainer.model_type != _BPE:
        yield "it is no BPE model"
    if not normalizer.add_dummy_prefix:
        yield "it puts no space before a text"
    if normalizer.remove_extra_whitespaces:
        yield "it removes repeated spaces"
    if normalizer.precompiled_charsmap or proto.denormalizer_spec.precompiled_charsmap:
        yield f"it normalises text ({normalizer.name})"
    if not normalizer.escape_whitespaces or trainer.treat_whitespace_as_suffix:
        yield "it treats spaces in a way of its own"
    if types.index(UNKNOWN) != 0:
        yield "its unknown token is not the first"
    expected = [f"<0x{byte:02X}>" for byte in range(256)]
    found = [piece.piece for piece in proto.pieces[_FIRST_BYTE : _FIRST_BYTE + 256]]
    if found != expected or types[_FIRST_BYTE : _FIRST_BYTE + 256] != [BYTE] * 256:
        yield "its 256 byte tokens do not stand after the first three"
    if not 0 <= trainer.bos_id < len(types) or not 0 <= trainer.eos_id < len(types):
        yield "it has no tokens for the beginning and end of a text"
    plain = {piece.piece for piece in proto.pieces if piece.type == NORMAL}
    if _SPACE not in plain:
        yield "it has no token for one space"
    user = next((piece.piece for piece in proto.pieces if piece.type == USER_DEFINED), None)
    if user is not None:
        yield f"it has tokens that are kept whole, such as {user!r}"
    unused = next((piece.piece for piece in proto.pieces if piece.type == UNUSED and len(piece.piece) == 1), None)
    if unused is not None:
        yield f"its letter {unused!r} is marked as unused"
    texts = [text for text, _ in _tokens(tokenizer)]
    if len(set(texts)) != len(texts):
        yield "two of its tokens are the same text"
