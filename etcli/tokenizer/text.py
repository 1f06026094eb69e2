"""What every kind of tokenizer does with text before it is encoded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from etcli.manifests.tokenizer import AddedToken


def well_formed(text: str) -> str:
    """Lone surrogates, which a terminal's broken bytes become, as replacement characters: no tokenizer takes them."""
    return re.sub(r"[\ud800-\udfff]", "�", text)


def alternatives(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of `texts`, the longest that fits, as the tokenizers package does; None for no texts."""
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def split_tokens(text: str, tokens: Mapping[str, AddedToken]) -> Iterator[str | int]:
    """`text` cut at the texts of `tokens`: their ids, and the text between them, never empty."""
    pattern = alternatives(tokens)
    at = 0
    for match in pattern.finditer(text) if pattern is not None else ():
        token = tokens[match[0]]
        before = text[at : match.start()]
        if token.lstrip:
            before = before.rstrip()
        if before:
            yield before
        yield token.id
        at = match.end()
        if token.rstrip:
            at += len(text[at:]) - len(text[at:].lstrip())
    if text[at:]:
        yield text[at:]
