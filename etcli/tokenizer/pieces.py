"""SentencePiece models: `tokenizer.model` of Llama 2, TinyLlama and Mistral, and what `gguf_pieces.py` builds from a GGUF file.

Ids and texts are those of the `sentencepiece` library, which reads the model itself. What the library does not know are the tokens that Hugging Face
adds beside the model, and the control tokens inside a text (`<s>`), which it never takes for tokens: text is cut at those before it is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etcli.common.errors import CheckpointError
from etcli.manifests.tokenizer import AddedToken, TokenizerKind, TokenizerSettings
from etcli.tokenizer.base import SavedTokenizer, TextStream
from etcli.tokenizer.ends import end_sources
from etcli.tokenizer.modelfile import bounded_bytes, save_model
from etcli.tokenizer.neighbours import SETTINGS, Neighbours
from etcli.tokenizer.streaming import WindowStream
from etcli.tokenizer.text import split_tokens, well_formed

if TYPE_CHECKING:
    import sentencepiece

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of a piece, the numbers of SentencePiece's `ModelProto.SentencePiece.Type`, which GGUF shares."""

_MAX_BYTES = 16 << 20
_MAX_PIECES = 1 << 20
_MAX_PIECE_BYTES = 4096


class SentencePieceTokenizer:
    """A SentencePiece model with what stands beside it; implements `tokenizer.base.Tokenizer`.

    Args:
        data: the model file, which `save` writes again.
        proto: the same as a `ModelProto`; pieces that `added` calls special become control pieces in it.
        added: tokens by id that the configuration lists, beyond the model's pieces or of them.
        prefix: which runs of text between tokens get the dummy space.
    """

    kind: TokenizerKind = "sentencepiece"

    def __init__(
        self,
        data: bytes,
        proto: Any,
        added: Mapping[int, AddedToken],
        *,
        prefix: Literal["first", "always"],
        bos_id: int | None,
        stop_sources: Mapping[int, tuple[str, ...]],
        special_tokens: Mapping[str, str],
        chat_template: str | None,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self._data, self._added, self._prefix = data, dict(added), prefix
        self.remarks = remarks
        self.bos_id = bos_id
        self.stop_sources = dict(stop_sources)
        self.stop_ids = tuple(sorted(stop_sources))
        self.special_tokens = dict(special_tokens)
        self.chat_template = chat_template
        self.proto = proto
        self.size = len(proto.pieces)
        self.beyond = {index: token for index, token in sorted(added.items()) if index >= self.size}
        self.vocab_size = 1 + max([self.size - 1, *self.beyond])
        for index, token in added.items():
            if index < self.size and token.special and proto.pieces[index].type == USER_DEFINED:
                proto.pieces[index].type = CONTROL
        self._first = _processor(proto)
        self._rest = _processor(proto, add_dummy_prefix=False)
        self._decode_first = _processor(proto, remove_extra_whitespaces=False)
        self._decode_rest = _processor(proto, add_dummy_prefix=False, remove_extra_whitespaces=False)
        controls = {
            piece.piece: added.get(index, AddedToken(id=index, text=piece.piece, special=True))
            for index, piece in enumerate(proto.pieces)
            if piece.type in (CONTROL, UNKNOWN)
        } | {token.text: token for token in self.beyond.values() if token.special}
        self._always = {token.text: token for token in self.beyond.values() if not token.special}
        self._special = self._always | controls
        self.control_texts = tuple(controls)
        self._skipped = frozenset(token.id for token in controls.values())

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """See `Tokenizer.encode`."""
        ids: list[int] = []
        start = True
        for part in split_tokens(well_formed(text), self._special if special else self._always):
            if isinstance(part, int):
                ids.append(part)
            else:
                processor = self._first if start or self._prefix == "always" else self._rest
                ids += processor.encode(part)
            start = False
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Tokenizer.decode`. Ids that the vocabulary lacks give no text."""
        text, run = "", []
        start = True
        for token in tokens:
            if token < 0 or token in self._skipped or (token >= self.size and token not in self.beyond):
                continue
            if token < self.size:
                run.append(token)
                continue
            text += self._run(run, start) + self.beyond[token].text
            run, start = [], False
        return text + self._run(run, start)

    def _run(self, ids: list[int], start: bool) -> str:
        return str((self._decode_first if start else self._decode_rest).decode(ids)) if ids else ""

    def stream(self) -> TextStream:
        """See `Tokenizer.stream`."""
        return WindowStream(self.decode, self.piece, self._skipped)

    def piece(self, token: int) -> str | None:
        """The vocabulary's own text of an id, None for an id it lacks."""
        if 0 <= token < self.size:
            return str(self.proto.pieces[token].piece)
        return self.beyond[token].text if token in self.beyond else None

    def save(self, folder: Path) -> SavedTokenizer:
        """See `Tokenizer.save`."""
        settings = TokenizerSettings(
            kind=self.kind,
            bos_id=self.bos_id,
            stop_ids=self.stop_ids,
            special_tokens=self.special_tokens,
            added=tuple(token for _, token in sorted(self._added.items())),
            prefix=self._prefix,
        )
        return save_model(folder, self._data, settings, self.chat_template)


def open_pieces(path: Path, beside: Neighbours) -> SentencePieceTokenizer:
    """The tokenizer of a SentencePiece model file.

    Raises:
        CheckpointError: `tokenizer.invalid`, it cannot be read, contradicts what stands beside it, or is absurdly large.
    """
    data = bounded_bytes(path, _MAX_BYTES)
    return sentencepiece_tokenizer(path, data, read_proto(path, data), beside)


def model_proto() -> Any:
    """The class of SentencePiece's model files, a protobuf message that the library ships."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]


def read_proto(path: Path, data: bytes) -> Any:
    """The `ModelProto` in `data`, checked to be whole.

    Raises:
        CheckpointError: `tokenizer.invalid`.
    """
    from google.protobuf.message import DecodeError

    try:
        proto = model_proto().FromString(data)
    except DecodeError:
        raise _invalid(path, "cannot be read as a SentencePiece model") from None
    # The specifications follow the pieces: a file that was cut between two pieces has none.
    if not proto.HasField("trainer_spec") or not proto.HasField("normalizer_spec"):
        raise _invalid(
            path, f"ends after {len(proto.pieces):,} pieces, without its trainer's and normalizer's settings"
        )
    return proto


def sentencepiece_tokenizer(
    path: Path,
    data: bytes,
    proto: Any,
    beside: Neighbours,
    *,
    stop_sources: Mapping[int, tuple[str, ...]] | None = None,
) -> SentencePieceTokenizer:
    """The tokenizer of a `ModelProto`. `stop_sources` replaces what the model and its neighbours say of ends.

    Raises:
        CheckpointError: `tokenizer.invalid`.
    """
    _check_pieces(path, proto)
    settings = beside.settings
    added = {token.id: token for token in settings.added} if settings is not None else dict(beside.added)
    _check_added(path, proto, added)
    processor = _checked_processor(path, proto)
    texts = {piece.piece: index for index, piece in enumerate(proto.pieces)}
    texts |= {token.text: index for index, token in added.items()}
    special = {
        name: proto.pieces[index].piece
        for name, index in (
            ("bos_token", processor.bos_id()),
            ("eos_token", processor.eos_id()),
            ("unk_token", processor.unk_id()),
            ("pad_token", processor.pad_id()),
        )
        if index >= 0
    } | dict(beside.special_tokens)
    if settings is not None:
        bos, prefix = settings.bos_id, settings.prefix
        stops: Mapping[int, tuple[str, ...]] = dict.fromkeys(settings.stop_ids, (SETTINGS,))
    else:
        bos = None if beside.add_bos is False else texts.get(special.get("bos_token", ""))
        prefix = "always" if beside.legacy else "first"
        eos = special.get("eos_token", "")
        controls = {piece.piece: index for index, piece in enumerate(proto.pieces) if piece.type == CONTROL}
        users = {piece.piece: index for index, piece in enumerate(proto.pieces) if piece.type == USER_DEFINED}
        stops = end_sources(
            controls | {token.text: index for index, token in added.items() if token.special},
            plain=users | {token.text: index for index, token in added.items() if not token.special},
            eos=(eos, texts[eos]) if eos in texts else None,
            configured=beside.ends,
            template=beside.chat_template,
        )
    return SentencePieceTokenizer(
        data,
        proto,
        added,
        prefix=prefix,
        bos_id=bos,
        stop_sources=stops if stop_sources is None else stop_sources,
        special_tokens=special,
        chat_template=beside.chat_template,
    )


def _check_pieces(path: Path, proto: Any) -> None:
    """What the library would end the process for, or take without a word."""
    if not 0 < len(proto.pieces) <= _MAX_PIECES:
        raise _invalid(path, f"has {len(proto.pieces):,} pieces")
    seen = set()
    for index, piece in enumerate(proto.pieces):
        # protobuf gives bytes for what is no UTF-8
        sound = isinstance(piece.piece, str) and "\0" not in piece.piece
        if not sound or not 0 < len(piece.piece) <= _MAX_PIECE_BYTES:
            raise _invalid(path, f"has a piece {index} that is empty, absurdly long or not a text")
        if piece.piece in seen:
            raise _invalid(path, f"has the piece {piece.piece!r} twice")
        seen.add(piece.piece)


def _check_added(path: Path, proto: Any, added: Mapping[int, AddedToken]) -> None:
    for index, token in added.items():
        if index < len(proto.pieces) and proto.pieces[index].piece != token.text:
            raise _invalid(
                path,
                f"has the piece {proto.pieces[index].piece!r} at {index}, the configuration beside it {token.text!r}",
            )
        if index >= _MAX_PIECES:
            raise _invalid(path, f"has the added token {token.text!r} beside it, with the absurd id {index}")


def _checked_processor(path: Path, proto: Any) -> sentencepiece.SentencePieceProcessor:
    try:
        return _processor(proto)
    except (RuntimeError, OSError) as error:
        raise _invalid(path, f"is refused by the sentencepiece library: {str(error)[:200]}") from None


def _processor(proto: Any, **normalizer: bool) -> sentencepiece.SentencePieceProcessor:
    """The library's processor of `proto`, its normalizer's settings replaced by those given."""
    import sentencepiece

    copy = type(proto).FromString(proto.SerializeToString())
    for name, value in normalizer.items():
        setattr(copy.normalizer_spec, name, value)
    return sentencepiece.SentencePieceProcessor(model_proto=copy.SerializeToString())


def _invalid(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} {what}",
        code="tokenizer.invalid",
        hint="Fetch the file again, and what stands beside it, from where the weights are from; the download may have been cut off.",
        file=path,
    )
