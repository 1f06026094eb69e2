"""The files that publishers put beside a tokenizer: which tokens are special, the chat template, the ids that end an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from etcli.common.errors import CheckpointError
from etcli.common.jsonfile import read_object
from etcli.manifests.tokenizer import AddedToken, TokenizerSettings
from etcli.tokenizer import template_header

TEMPLATE = "chat_template.jinja"
SETTINGS = "tokenizer_settings.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_INVALID = "tokenizer.invalid"


@dataclass(frozen=True)
class Neighbours:
    """What stands beside a tokenizer file.

    Attributes:
        special_tokens: texts of `bos_token` and its like.
        chat_template: the Jinja template.
        add_bos: whether the configuration wants `bos_token` before a text; None where it does not say.
        legacy: Hugging Face's name for SentencePiece's dummy space after every special token; None where it does not say.
        added: tokens that the configuration lists, by id.
        ends: ids by the file that lists them as `eos_token_id`.
        vocab_size: rows of the embedding by `config.json` or `params.json`; None where neither says.
        settings: a bundle's own record, which then is all there is to know.
    """

    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None
    add_bos: bool | None = None
    legacy: bool | None = None
    added: Mapping[int, AddedToken] = field(default_factory=dict)
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    vocab_size: int | None = None
    settings: TokenizerSettings | None = None


def read_neighbours(folder: Path) -> Neighbours:
    """As much of the known files as `folder` has.

    Raises:
        CheckpointError: `tokenizer.invalid`, `checkpoint.lfs_pointer`: a file cannot be read as what it should be.
    """
    config = _optional(folder / "tokenizer_config.json")
    special_map = _optional(folder / "special_tokens_map.json")
    template = _template(folder, config)
    special = _special_tokens(config, special_map)
    if template is not None:
        written, template = template_header.split_header(template)
        special = written | special
    settings = _settings(folder / SETTINGS)
    if settings is not None:
        special = special | settings.special_tokens
    model = {name: _optional(folder / name) for name in ("config.json", "generation_config.json", "params.json")}
    sizes = [size for size in (model["config.json"].get("vocab_size"), model["params.json"].get("vocab_size")) if size]
    return Neighbours(
        special_tokens=special,
        chat_template=template,
        add_bos=_flag(config, "add_bos_token"),
        legacy=_flag(config, "legacy"),
        added=_added(folder, config, special_map, special),
        ends={name: ids for name, values in model.items() if (ids := _ids(values.get("eos_token_id")))},
        vocab_size=next((size for size in sizes if isinstance(size, int) and size > 0), None),
        settings=settings,
    )


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path, code=_INVALID) if path.is_file() else {}


def _flag(config: Mapping[str, Any], name: str) -> bool | None:
    value = config.get(name)
    return value if isinstance(value, bool) else None


def _ids(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, int) and not isinstance(item, bool) and item >= 0)


def _settings(path: Path) -> TokenizerSettings | None:
    return TokenizerSettings.read(path, error=CheckpointError) if path.is_file() else None


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
    """`chat_template.jinja`, else the configuration's, of which several may have names (then `default`), else `chat_template.json`."""
    path = folder / TEMPLATE
    if path.is_file():
        try:
            return path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{path.name} is not UTF-8: {error}",
                code=_INVALID,
                hint="Fetch the file again; a chat template is text.",
                file=path,
            ) from None
    for source in (config, _optional(folder / "chat_template.json")):
        value = source.get("chat_template")
        if isinstance(value, list):
            named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
            value = named.get("default")
        if isinstance(value, str):
            return value
    return None


def _added(
    folder: Path, config: Mapping[str, Any], special_map: Mapping[str, Any], named: Mapping[str, str]
) -> dict[int, AddedToken]:
    """Tokens of `added_tokens.json` and of the configuration's `added_tokens_decoder`, which knows more of them."""
    special = set(named.values())
    for source in (config, special_map):
        extra = source.get("additional_special_tokens")
        for item in extra if isinstance(extra, list) else ():
            text = item.get("content") if isinstance(item, dict) else item
            if isinstance(text, str):
                special.add(text)
    entries: dict[Any, Any] = {
        index: {"content": text, "special": text in special}
        for text, index in _optional(folder / "added_tokens.json").items()
    }
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        entries |= {
            int(key) if key.isascii() and key.isdigit() and len(key) < 12 else key: value
            for key, value in decoder.items()
        }
    found: dict[int, AddedToken] = {}
    for index, entry in entries.items():
        try:
            found[index] = AddedToken(
                id=index,
                text=entry["content"],
                special=bool(entry.get("special", False)),
                lstrip=entry.get("lstrip") is True,
                rstrip=entry.get("rstrip") is True,
            )
        except (pydantic.ValidationError, TypeError, KeyError, AttributeError):
            raise CheckpointError(
                f"the added token {index!r} of {folder.name} is not a text with an id: {str(entry)[:100]}",
                code=_INVALID,
                hint="Correct added_tokens_decoder in tokenizer_config.json, or added_tokens.json.",
                file=folder / "tokenizer_config.json",
            ) from None
    return found
