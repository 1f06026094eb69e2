"""Llama 3's `tokenizer.model`: tiktoken ranks, a base64 token and its rank on each line.

The file holds neither the expression that cuts text nor the special tokens. Both are those of Llama 3, as Meta's `llama-models` (`tokenizer.py`) and
the Hugging Face conversion publish them: 256 special tokens after the ranks. Files of other families, which cut text otherwise, are told by their
number of ranks and refused by name.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from etcli.common.errors import CheckpointError
from etcli.manifests.tokenizer import AddedToken, TokenizerKind, TokenizerSettings
from etcli.tokenizer.base import SavedTokenizer, TextStream
from etcli.tokenizer.ends import end_sources
from etcli.tokenizer.modelfile import bounded_bytes, save_model
from etcli.tokenizer.neighbours import SETTINGS, Neighbours
from etcli.tokenizer.streaming import ByteStream
from etcli.tokenizer.text import well_formed

LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
"""What the first line of a file of ranks looks like."""

LLAMA3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_BOS, LLAMA3_EOS = "<|begin_of_text|>", "<|end_of_text|>"
"""Llama 3's first two special tokens, right after the ranks."""
_NAMED = {
    0: LLAMA3_BOS,
    1: LLAMA3_EOS,
    4: "<|finetune_right_pad_id|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
} | {
    8: "<|eom_id|>",
    9: "<|eot_id|>",
    10: "<|python_tag|>",
}
_SPECIAL = 256
_OTHERS = {
    50256: "GPT-2",
    100256: "GPT-4 (cl100k)",
    151643: "Qwen",
    163584: "Kimi",
    199998: "GPT-4o (o200k)",
    200000: "Llama 4",
}
_MAX_BYTES = 16 << 20
_MAX_RANKS = 1 << 20
_MAX_TOKEN_BYTES = 1024
_RUN = 25_000
"""tiktoken's engine gives up on longer runs of white space; Meta's own tokenizer cuts runs of either kind here."""


class TiktokenTokenizer:
    """Llama 3's tokenizer from its ranks; implements `tokenizer.base.Tokenizer`."""

    kind: TokenizerKind = "tiktoken"
    remarks: tuple[str, ...] = ()

    def __init__(
        self,
        data: bytes,
        ranks: Mapping[bytes, int],
        added: Sequence[AddedToken],
        *,
        bos_id: int | None,
        stop_sources: Mapping[int, tuple[str, ...]],
        special_tokens: Mapping[str, str],
        chat_template: str | None,
    ) -> None:
        import tiktoken

        self._data, self._added = data, tuple(added)
        self.bos_id = bos_id
        self.stop_sources = dict(stop_sources)
        self.stop_ids = tuple(sorted(stop_sources))
        self.special_tokens = dict(special_tokens)
        self.chat_template = chat_template
        self._special = {token.text: token.id for token in added}
        self.control_texts = tuple(self._special)
        # Built from what was read here: nothing is fetched or cached, as tiktoken's own named encodings would.
        self._encoding = tiktoken.Encoding(
            "llama3", pat_str=LLAMA3_PATTERN, mergeable_ranks=dict(ranks), special_tokens=self._special
        )
        self._pieces = {rank: token for token, rank in ranks.items()}
        self.vocab_size = 1 + max([len(ranks) - 1, *self._special.values()])

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """See `Tokenizer.encode`."""
        allowed = set(self._special) if special else set()
        ids = [
            token
            for part in _bounded(well_formed(text))
            for token in self._encoding.encode(part, allowed_special=allowed, disallowed_special=())
        ]
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Tokenizer.decode`. Ids that the vocabulary lacks give no text."""
        return b"".join(self._pieces.get(token, b"") for token in tokens).decode("utf-8", errors="replace")

    def stream(self) -> TextStream:
        """See `Tokenizer.stream`."""
        return ByteStream(self._pieces.get)

    def save(self, folder: Path) -> SavedTokenizer:
        """See `Tokenizer.save`."""
        settings = TokenizerSettings(
            kind=self.kind,
            bos_id=self.bos_id,
            stop_ids=self.stop_ids,
            special_tokens=self.special_tokens,
            added=self._added,
        )
        return save_model(folder, self._data, settings, self.chat_template)


def open_ranks(path: Path, beside: Neighbours) -> TiktokenTokenizer:
    """The tokenizer of a file of ranks.

    Raises:
        CheckpointError: `tokenizer.invalid`, a line is no rank, ranks are missing or the file is absurdly large; `tokenizer.unsupported`, the
            ranks are another family's.
    """
    data = bounded_bytes(path, _MAX_BYTES)
    ranks = _ranks(path, data)
    if len(ranks) in _OTHERS:
        raise CheckpointError(
            f"{path.name} has {len(ranks):,} tiktoken ranks, which are those of {_OTHERS[len(ranks)]}; only Llama 3's are supported",
            code="tokenizer.unsupported",
            hint="Use the model's Hugging Face folder, which has a tokenizer.json.",
            file=path,
        )
    added = list(beside.settings.added) if beside.settings is not None else _special(path, len(ranks), beside)
    by_text = {token.text: token.id for token in added}
    _check_size(path, len(ranks), beside)
    special = {"bos_token": LLAMA3_BOS, "eos_token": LLAMA3_EOS} | dict(beside.special_tokens)
    if beside.settings is not None:
        bos = beside.settings.bos_id
        stops: Mapping[int, tuple[str, ...]] = dict.fromkeys(beside.settings.stop_ids, (SETTINGS,))
    else:
        bos = None if beside.add_bos is False else by_text.get(special["bos_token"])
        eos = special["eos_token"]
        stops = end_sources(
            by_text,
            plain={},
            eos=(eos, by_text[eos]) if eos in by_text else None,
            configured=beside.ends,
            template=beside.chat_template,
        )
    return TiktokenTokenizer(
        data,
        ranks,
        added,
        bos_id=bos,
        stop_sources=stops,
        special_tokens=special,
        chat_template=beside.chat_template,
    )


def _ranks(path: Path, data: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        parts = line.split()
        if not parts and number > 1:
            continue
        try:
            token = base64.b64decode(parts[0], validate=True)
            rank = int(parts[1])
            if len(parts) != 2 or not 0 < len(token) <= _MAX_TOKEN_BYTES or not 0 <= rank < _MAX_RANKS:
                raise ValueError
        except (binascii.Error, ValueError, IndexError):
            raise _invalid(path, "is not a base64 token and its rank", line=number) from None
        if token in ranks:
            raise _invalid(path, f"has the token of rank {ranks[token]} again", line=number)
        ranks[token] = rank
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise _invalid(path, f"has {len(ranks):,} ranks, which are not the numbers from 0 on")
    absent = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if absent:
        raise _invalid(path, f"has no token for {len(absent)} of the 256 bytes, such as 0x{absent[0]:02X}")
    return ranks


def _special(path: Path, count: int, beside: Neighbours) -> list[AddedToken]:
    """The special tokens after `count` ranks: as the configuration names them, else Llama 3.1's names."""
    named = {index: token for index, token in beside.added.items() if index >= count}
    wrong = next((token for index, token in beside.added.items() if index < count), None)
    first = named.get(count)
    if wrong is not None or (named and (first is None or first.text != LLAMA3_BOS)):
        found = wrong or first or named[min(named)]
        raise CheckpointError(
            f"{path.name} has {count:,} ranks, but the configuration beside it has {found.text} at {found.id}: "
            f"Llama 3's first special token, {LLAMA3_BOS}, stands right after the ranks",
            code="tokenizer.unsupported",
            hint="The two are of different models, or the file is cut off. Use the model's Hugging Face folder, which has a tokenizer.json.",
            file=path,
        )
    taken = {token.text for token in named.values()}
    reserved = iter(range(_SPECIAL))
    for index in range(_SPECIAL):
        if count + index in named:
            continue
        text = _NAMED.get(index) or f"<|reserved_special_token_{next(reserved)}|>"
        while text in taken:
            text = f"<|reserved_special_token_{next(reserved)}|>"
        taken.add(text)
        named[count + index] = AddedToken(id=count + index, text=text, special=True)
    texts = [token.text for token in named.values()]
    if len(set(texts)) != len(texts):
        raise _invalid(path, "has special tokens beside it that stand twice in tokenizer_config.json")
    return [token.model_copy(update={"special": True}) for _, token in sorted(named.items())]


def _check_size(path: Path, count: int, beside: Neighbours) -> None:
    """A file cut between two lines is whole to look at; its special tokens would get other ids."""
    if beside.vocab_size is not None and count + 2 * _SPECIAL <= beside.vocab_size and not beside.added:
        raise _invalid(
            path,
            f"has {count:,} ranks, the model's {beside.vocab_size:,} rows ask for {beside.vocab_size - _SPECIAL:,}",
        )


def _bounded(text: str) -> Iterator[str]:
    """`text` in parts without runs of more than `_RUN` characters of white space or of other characters, as Meta's tokenizer cuts it."""
    at = 0
    for match in re.finditer(rf"\s{{{_RUN + 1},}}|\S{{{_RUN + 1},}}", text):
        for cut in range(match.start() + _RUN, match.end(), _RUN):
            yield text[at:cut]
            at = cut
    if text[at:]:
        yield text[at:]


def _invalid(path: Path, what: str, *, line: int | None = None) -> CheckpointError:
    where = "" if line is None else f"line {line} of "
    return CheckpointError(
        f"{where}{path.name} {what}",
        code="tokenizer.invalid",
        hint="Fetch the file again; the download may have been cut off.",
        file=path,
        line=line,
    )
