"""A recipe as it was written: plain values, each with the place it stands at and the folder its paths start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etcli.common.errors import Problem, RecipeError
from etcli.common.text import shown
from etcli.recipe.loaded import Location


@dataclass(frozen=True)
class Written:
    """One value.

    `content` is a scalar (str, int, float, bool, None, `OddScalar`), a list or a dict of `Written`. `key` is where its key stands, for a
    mapping's value; `place` where the value itself stands. `raw` is a scalar as it was typed, `setting` the whole `--set` argument that
    wrote it, `folder` what relative paths in it start from.
    """

    content: Any
    place: Location
    key: Location
    folder: Path
    raw: str | None = None
    setting: str | None = None

    @property
    def mapping(self) -> dict[str, Written] | None:
        """The members, if this is a mapping."""
        return self.content if isinstance(self.content, dict) else None

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.content, dict):
            return {key: value.plain() for key, value in self.content.items()}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        return self.content

    def walk(self, words: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Written]]:
        """This value and all below it, each with the words that lead to it."""
        yield words, self
        if isinstance(self.content, dict):
            for key, value in self.content.items():
                yield from value.walk((*words, key))
        elif isinstance(self.content, list):
            for index, value in enumerate(self.content):
                yield from value.walk((*words, index))

    def find(self, words: tuple[str | int, ...]) -> tuple[Written, int]:
        """The value that `words` lead to, or its nearest written parent, and how many of the words were followed."""
        here = self
        for done, word in enumerate(words):
            inside = isinstance(here.content, dict) and word in here.content
            if not inside and not (isinstance(here.content, list) and word in range(len(here.content))):
                return here, done
            here = here.content[word]
        return here, len(words)

    def problem(self, code: str, message: str, hint: str | None, *, at_key: bool = False) -> Problem:
        """A `RecipeError` problem that points at a scalar, or at the key of anything else, or names the `--set` argument."""
        place = self.key if at_key or isinstance(self.content, (dict, list)) else self.place
        if self.setting is not None:
            message = f"--set {shorten(self.setting)}: {message}"
        return RecipeError.problem(message, code=code, hint=hint, file=place.file, line=place.line, column=place.column)


def merge(below: Written, above: Written) -> Written:
    """`above` laid over `below`: mappings merge key by key, anything else replaces."""
    if not isinstance(below.content, dict) or not isinstance(above.content, dict):
        return above
    members = dict(below.content)
    for key, value in above.content.items():
        members[key] = merge(members[key], value) if key in members else value
    return replace(above, content=members)


def shorten(text: str, limit: int = 80) -> str:
    """`text` on one line, printable and at most `limit` characters long, for messages."""
    line = shown(text[: limit + 1], keep="")
    return line if len(line) <= limit else line[: limit - 3] + "..."
