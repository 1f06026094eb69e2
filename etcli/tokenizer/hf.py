"""Tokenizers of the `tokenizers` package: a Hugging Face folder, a bundle's folder, or what `gguf.py` builds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from etcli.common.errors import CheckpointError
from etcli.common.files import write_atomically
from etcli.common.jsonfile import read_object
from etcli.tokenizer import template_header
from etcli.tokenizer.base import TextStream
from etcli.tokenizer.streaming import ByteStream, WindowStream

TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.jinja"
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_MAX_BYTES = 512 << 20

# Tokens that end an answer whatever a folder's configuration forgets to say.
_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "</s>")


class HfTokenizer:
    """A `tokenizers.Tokenizer` with what stands beside it; implements `tokenizer.base.Tokenizer`. Not for use by several threads at once."""

    kind = "hf"

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        bos_id: int | None,
        stop_ids: Iterable[int],
        special_tokens: Mapping[str, str],
        chat_template: str | None,
    ) -> None:
        # A saved limit or padding of the training run would silently cut or fill prompts.
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self.bos_id = bos_id
        self.stop_ids = tuple(sorted(set(stop_ids)))
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
        ids: list[int] = self._inner.encode(_well_formed(text), add_special_tokens=False).ids
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Tokenizer.decode`. Ids that the vocabulary lacks give no text."""
        known = [token for token in tokens if 0 <= token < self.vocab_size]
        return str(self._inner.decode(known, skip_special_tokens=True))

    def stream(self) -> TextStream:
        """See `Tokenizer.stream`."""
        if self._byte_level:
            return ByteStream(self._piece, self._skipped)
        return WindowStream(self.decode, self._piece, self._skipped)

    def save(self, folder: Path) -> tuple[Path, Path | None]:
        """See `Tokenizer.save`. `open_tokenizer` of the folder gives the same ids, texts and prompts."""
        copy = tokenizers.Tokenizer.from_str(self._inner.to_str())
        if self.bos_id is not None and _added_first(copy) != self.bos_id:
            token = copy.id_to_token(self.bos_id)
            copy.post_processor = TemplateProcessing(single=[token, "$A"], special_tokens=[(token, self.bos_id)])
        if self.bos_id is None and _added_first(copy) is not None:
            copy.post_processor = TemplateProcessing(single="$A", special_tokens=[])
        path = folder / TOKENIZER
        write_atomically(path, copy.to_str(pretty=False) + "\n")
        if self.chat_template is None:
            return path, None
        template = folder / TEMPLATE
        write_atomically(template, template_header.with_header(self.chat_template, self.special_tokens))
        return path, template

    def _piece(self, token: int) -> str | None:
        piece: str | None = self._inner.id_to_token(token) if token < self.vocab_size else None
        return piece


def open_folder(folder: Path) -> HfTokenizer:
    """The tokenizer of `folder`, which holds `tokenizer.json` and as much of the files around it as the publisher gave.

    Raises:
        CheckpointError: `tokenizer.invalid`, a file that cannot be read as what it should be.
    """
    path = folder / TOKENIZER
    if path.stat().st_size > _MAX_BYTES:
        raise CheckpointError(
            f"{path.name} has {path.stat().st_size} bytes, more than the {_MAX_BYTES} that a tokenizer may have",
            code="tokenizer.invalid",
            hint="Fetch the file again; it is not the tokenizer of this model.",
            file=path,
        )
    try:
        inner = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the package raises plain Exception for whatever is wrong
        raise CheckpointError(
            f"{path.name} cannot be read by tokenizers {tokenizers.__version__}: {str(error)[:200]}",
            code="tokenizer.invalid",
            hint="Fetch the file again; a Git LFS pointer or a cut-off download looks like this.",
            file=path,
        ) from None
    if not inner.get_vocab_size(with_added_tokens=True):
        raise CheckpointError(
            f"{path.name} has no vocabulary",
            code="tokenizer.invalid",
            hint="Fetch the file again, from where the model's weights are from.",
            file=path,
        )
    config = _optional(folder / "tokenizer_config.json")
    template = _template(folder, config)
    special = _special_tokens(config, _optional(folder / "special_tokens_map.json"))
    if template is not None:
        written, template = template_header.split_header(template)
        special = written | special
    added = _added_first(inner)
    bos = inner.token_to_id(special["bos_token"]) if "bos_token" in special else added
    if config.get("add_bos_token") is True:
        added = bos
    elif config.get("add_bos_token") is False:
        added = None
    stops = [_optional(folder / name).get("eos_token_id") for name in ("config.json", "generation_config.json")]
    return HfTokenizer(
        inner,
        bos_id=added,
        stop_ids=_stop_ids(inner, special.get("eos_token"), stops),
        special_tokens=special,
        chat_template=template,
    )


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path, code="tokenizer.invalid") if path.is_file() else {}


def _special_tokens(*configs: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _NAMED:
        for config in configs:
            value = config.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                found.setdefault(name, text)
    return found


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """`chat_template.jinja`, else the configuration's, of which several may have names; then `default`."""
    path = folder / TEMPLATE
    if path.is_file():
        try:
            return path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{path.name} is not UTF-8: {error}",
                code="tokenizer.invalid",
                hint="Fetch the file again; a chat template is text.",
                file=path,
            ) from None
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _stop_ids(inner: tokenizers.Tokenizer, eos: str | None, configured: Iterable[Any]) -> set[int]:
    special = {token.content: index for index, token in inner.get_added_tokens_decoder().items() if token.special}
    found = {special[name] for name in _ENDS if name in special}
    end = inner.token_to_id(eos) if eos is not None else None
    if end is not None:
        found.add(end)
    for value in configured:
        ids = value if isinstance(value, list) else [value]
        found.update(index for index in ids if isinstance(index, int) and not isinstance(index, bool) and index >= 0)
    return found


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


def _well_formed(text: str) -> str:
    """Lone surrogates, which a terminal's broken bytes become, as replacement characters: the package takes none."""
    return re.sub(r"[\ud800-\udfff]", "�", text)
