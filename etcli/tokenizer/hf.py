"""Tokenizers of the `tokenizers` package: a Hugging Face folder, a bundle's folder, or what `gguf.py` builds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from etcli.common.errors import CheckpointError
from etcli.common.files import write_atomically
from etcli.manifests.tokenizer import TokenizerKind
from etcli.tokenizer import template_header
from etcli.tokenizer.base import SavedTokenizer, TextStream
from etcli.tokenizer.ends import end_sources
from etcli.tokenizer.modelfile import bounded_bytes
from etcli.tokenizer.neighbours import TEMPLATE, Neighbours
from etcli.tokenizer.streaming import ByteStream, WindowStream, piece_bytes
from etcli.tokenizer.text import well_formed

TOKENIZER = "tokenizer.json"
_MAX_BYTES = 64 << 20


class HfTokenizer:
    """A `tokenizers.Tokenizer` with what stands beside it; implements `tokenizer.base.Tokenizer`. Not for use by several threads at once."""

    kind: TokenizerKind = "hf"

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        bos_id: int | None,
        stop_sources: Mapping[int, tuple[str, ...]],
        special_tokens: Mapping[str, str],
        chat_template: str | None,
        file: bytes | None = None,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self._inner, self._file = inner, file
        self.remarks = remarks
        self.bos_id = bos_id
        self.stop_sources = dict(stop_sources)
        self.stop_ids = tuple(sorted(stop_sources))
        self.special_tokens = dict(special_tokens)
        self.chat_template = chat_template
        self.vocab_size = 1 + max(inner.get_vocab(with_added_tokens=True).values(), default=-1)
        special = {index: token for index, token in inner.get_added_tokens_decoder().items() if token.special}
        self.control_texts = tuple(token.content for token in special.values())
        self._skipped = frozenset(special)
        self._byte_level = _is_byte_level(inner.decoder)

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """See `Tokenizer.encode`."""
        self._inner.encode_special_tokens = not special
        with _panics_named():
            ids: list[int] = self._inner.encode(well_formed(text), add_special_tokens=False).ids
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Tokenizer.decode`. Ids that the vocabulary lacks give no text."""
        known = [token for token in tokens if 0 <= token < self.vocab_size]
        with _panics_named():
            return str(self._inner.decode(known, skip_special_tokens=True))

    def stream(self) -> TextStream:
        """See `Tokenizer.stream`."""
        if self._byte_level:
            return ByteStream(self._bytes)
        return WindowStream(self.decode, self._piece, self._skipped)

    def save(self, folder: Path) -> SavedTokenizer:
        """See `Tokenizer.save`. `open_tokenizer` of the folder gives the same ids, texts and prompts."""
        path = folder / TOKENIZER
        write_atomically(path, self._to_file())
        if self.chat_template is None:
            return SavedTokenizer(path)
        template = folder / TEMPLATE
        write_atomically(template, template_header.with_header(self.chat_template, self.special_tokens))
        return SavedTokenizer(path, template)

    def _to_file(self) -> bytes:
        """The file that this came from, unless another file said otherwise about the first token: then that goes into it."""
        if self._file is not None and _added_first(self._inner) == self.bos_id:
            return self._file
        copy = tokenizers.Tokenizer.from_str(self._inner.to_str())
        if self.bos_id is not None and _added_first(copy) != self.bos_id:
            token = copy.id_to_token(self.bos_id)
            copy.post_processor = TemplateProcessing(single=[token, "$A"], special_tokens=[(token, self.bos_id)])
        if self.bos_id is None and _added_first(copy) is not None:
            copy.post_processor = TemplateProcessing(single="$A", special_tokens=[])
        return (copy.to_str(pretty=False) + "\n").encode()

    def _bytes(self, token: int) -> bytes | None:
        piece = None if token < 0 or token in self._skipped else self._piece(token)
        return None if piece is None else piece_bytes(piece)

    def _piece(self, token: int) -> str | None:
        piece: str | None = self._inner.id_to_token(token) if token < self.vocab_size else None
        return piece


def open_json(path: Path, beside: Neighbours) -> HfTokenizer:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        CheckpointError: `tokenizer.invalid`, the file cannot be read as what it should be.
    """
    with _panics_named(path):
        return _opened(path, bounded_bytes(path, _MAX_BYTES), beside)


def _opened(path: Path, data: bytes, beside: Neighbours) -> HfTokenizer:
    try:
        inner = tokenizers.Tokenizer.from_buffer(data)
        # A saved limit or padding of the training run would silently cut or fill prompts, and be taken for a first token.
        inner.no_truncation()
        inner.no_padding()
    except Exception as error:  # the package raises plain Exception for whatever is wrong
        raise CheckpointError(
            f"{path.name} cannot be read by tokenizers {tokenizers.__version__}: {str(error)[:200]}",
            code="tokenizer.invalid",
            hint="Fetch the file again; a cut-off download looks like this. A newer file may need a newer tokenizers package.",
            file=path,
        ) from None
    if not inner.get_vocab_size(with_added_tokens=True):
        raise CheckpointError(
            f"{path.name} has no vocabulary",
            code="tokenizer.invalid",
            hint="Fetch the file again, from where the model's weights are from.",
            file=path,
        )
    special = beside.special_tokens
    bos = added = _added_first(inner)
    if "bos_token" in special:
        bos = inner.token_to_id(special["bos_token"])
    if beside.add_bos is not None:
        added = bos if beside.add_bos else None
    tokens = inner.get_added_tokens_decoder()
    eos = inner.token_to_id(special["eos_token"]) if "eos_token" in special else None
    return HfTokenizer(
        inner,
        bos_id=added,
        stop_sources=end_sources(
            {token.content: index for index, token in tokens.items() if token.special},
            plain={token.content: index for index, token in tokens.items() if not token.special},
            eos=None if eos is None else (special["eos_token"], eos),
            configured=beside.ends,
            template=beside.chat_template,
        ),
        special_tokens=special,
        chat_template=beside.chat_template,
        file=data,
    )


@contextlib.contextmanager
def _panics_named(path: Path | None = None) -> Iterator[None]:
    """A panic of the package's Rust code, which is no `Exception`, as the fault of the file that caused it.

    Raises:
        CheckpointError: `tokenizer.invalid`.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise CheckpointError(
            f"{TOKENIZER} breaks the package that reads it, tokenizers {tokenizers.__version__}: {str(error)[:200]}",
            code="tokenizer.invalid",
            hint="Fetch the file again, from where the model's weights are from.",
            file=path,
        ) from None


def _added_first(inner: tokenizers.Tokenizer) -> int | None:
    """The id that the tokenizer's own post-processor puts before a text, if it does."""
    alone = inner.encode("", add_special_tokens=True).ids
    if not alone:
        return None
    letters = inner.encode("a", add_special_tokens=True).ids
    return int(alone[0]) if letters[:1] == alone[:1] else None


def _is_byte_level(decoder: Any) -> bool:
    if decoder is None:
        return False
    state = json.loads(decoder.__getstate__())
    if state.get("type") == "Sequence":
        return [part.get("type") for part in state.get("decoders", [])] == ["ByteLevel"]
    return bool(state.get("type") == "ByteLevel")
