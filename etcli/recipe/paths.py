"""Which recipe values are paths, and how a path keeps its meaning when another recipe inherits it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from etcli.recipe.schema import SIMULATOR
from etcli.recipe.written import Written

Words = tuple[str | int, ...]


def _always(text: str) -> bool:
    return bool(text)


def _has_slash(text: str) -> bool:
    return "/" in text


def is_operator_folder(text: str) -> bool:
    """Whether an entry of `build.custom_ops` is a folder of the user's own: it has a `/`, or is `.`, `..` or `~`."""
    return "/" in text or text in (".", "..", "~")


# A dotted key, and which of its values are paths. Items of a list share the list's key.
PATH_KEYS: dict[str, Callable[[str], bool]] = {
    "model.source": lambda text: not text.startswith(("pypi:", "hf:")),
    "model.adapter": _always,
    "export.python": _has_slash,  # a bare word is looked up on PATH
    "neuron.sdk": lambda text: text != SIMULATOR,
    "neuron.calibration.file": _always,
    "build.custom_ops": is_operator_folder,  # a bare word names an operator library of the product
    "build.executorch.root": _always,
    "build.ndk": _always,
}


def is_path(words: Words, text: str) -> bool:
    """Whether the value `text` of the key that `words` lead to is a path."""
    test = PATH_KEYS.get(".".join(word for word in words if isinstance(word, str)))
    return test is not None and test(text)


def rebase(written: Written, expanded: Written, base: Path) -> tuple[Written, Written]:
    """Both trees with every inherited relative path rewritten to start from `base` instead of the folder it was written for.

    `expanded` is `written` with its variables replaced and decides what is a relative path; both get the same prefix, so that the text
    with variables goes on meaning the same.
    """
    prefixes: dict[Words, str] = {}
    for words, value in expanded.walk():
        text = value.content
        if isinstance(text, str) and value.folder != base and is_path(words, text) and not text.startswith(("/", "~")):
            prefixes[words] = os.path.relpath(value.folder, base)
    return _prefixed(written, prefixes, ()), _prefixed(expanded, prefixes, ())


def _prefixed(value: Written, prefixes: dict[Words, str], words: Words) -> Written:
    if isinstance(value.content, dict):
        members = {key: _prefixed(item, prefixes, (*words, key)) for key, item in value.content.items()}
        return replace(value, content=members)
    if isinstance(value.content, list):
        items = [_prefixed(item, prefixes, (*words, index)) for index, item in enumerate(value.content)]
        return replace(value, content=items)
    if words in prefixes and prefixes[words] != ".":
        return replace(value, content=f"{prefixes[words]}/{value.content.removeprefix('./')}")
    return value
