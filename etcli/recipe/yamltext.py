"""YAML text as `Written` values: one document, every key and value with line and column, nothing that YAML could hide.

Refused with a place: duplicate keys, aliases (so no alias bombs), tags, several documents, tabs, keys that are not text, deep nesting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
import yaml.reader

from etcli.common.errors import Problem
from etcli.recipe.loaded import Location
from etcli.recipe.scalars import add_yaml_1_2_numbers, scalar_value
from etcli.recipe.written import Written, shorten

MAX_DEPTH = 32

_ODD_CHARACTER = re.compile("[\\x00\ud800-\udfff]")
_QUOTE = "Text that holds YAML's special characters (such as ': ', ' #', or a leading * & ! % @ `) needs quotes."
_INDENT = "Check the indentation and the quotes here and on the lines before."


@dataclass(frozen=True)
class _At:
    """A place in a text, both from 0, as PyYAML's marks have it."""

    line: int
    column: int


class _Source:
    """Where a text came from: a file, or a `--set` argument, which has no lines of its own."""

    def __init__(self, file: Path | None, folder: Path, setting: str | None) -> None:
        self.file = file
        self.folder = folder
        self.setting = setting
        self.problems: list[Problem] = []

    def location(self, mark: Any) -> Location:
        if self.file is None or mark is None:
            return Location(self.file, None, None)
        return Location(self.file, mark.line + 1, mark.column + 1)

    def add(self, code: str, message: str, hint: str | None, mark: Any) -> None:
        place = self.location(mark)
        here = Written(None, place, place, self.folder, setting=self.setting)
        self.problems.append(here.problem(code, message, hint))


class _Composer(yaml.SafeLoader):
    """Composes nodes; aliases, tags and depth are reported or bounded as they come."""

    def __init__(self, text: str, source: _Source) -> None:
        super().__init__(text)
        self.source = source
        self.depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        events: Any = self
        event = events.peek_event()
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            events.get_event()
            self.source.add(
                "recipe.alias",
                f"*{shorten(str(event.anchor))} refers to another place of the file, which recipes do not support",
                "Write the value out, or put what recipes share into one that they extend.",
                mark,
            )
            return yaml.ScalarNode("tag:yaml.org,2002:null", "", mark, mark)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            self.source.add(
                "recipe.tag",
                f"the tag {shorten(str(tag))} is not supported",
                "Remove the tag; quote text instead.",
                mark,
            )
            event.tag = None
        if self.depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels of nesting", problem_mark=mark)
        self.depth += 1
        try:
            # An anchor without its alias says nothing; two of one name are no error of the recipe.
            event.anchor = None
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def document(self) -> Any:
        """The root node of the first document, or None; further documents are a problem."""
        events: Any = self
        events.get_event()
        if self.check_event(yaml.StreamEndEvent):
            return None
        node = self.compose_document()
        if not self.check_event(yaml.StreamEndEvent):
            self.source.add(
                "recipe.several_documents",
                "a second document starts here; a recipe is one document",
                "Remove the --- line, or put the second recipe into a file of its own.",
                events.peek_event().start_mark,
            )
        return node


add_yaml_1_2_numbers(_Composer)


def read_text(
    text: str, *, file: Path | None, folder: Path, setting: str | None = None
) -> tuple[Written | None, list[Problem]]:
    """The one document in `text`, and what is wrong with it as YAML. Meaning is checked elsewhere.

    None where the text is empty or cannot be read at all.

    Args:
        file: the file it came from, None for a `--set` argument.
        folder: what its relative paths start from.
        setting: the whole `--set` argument.
    """
    source = _Source(file, folder, setting)
    composer = None
    try:
        composer = _Composer(text, source)
        node = composer.document()
        return (None if node is None else _written(node, source, None)), source.problems
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = _At(before.count("\n"), len(before) - before.rfind("\n") - 1)
        code_point = ord(text[error.position])
        source.add("recipe.character", f"the character U+{code_point:04X} is not allowed", "Remove it.", mark)
    except yaml.MarkedYAMLError as error:
        _add_syntax(source, text, error)
    except (ValueError, OverflowError):
        # PyYAML 6 lets chr() fail on an escape above U+10FFFF.
        here = composer.get_mark() if composer is not None else None
        source.add("recipe.syntax", "an escape in quoted text names no character", "Write the character itself.", here)
    return None, source.problems


def _add_syntax(source: _Source, text: str, error: yaml.MarkedYAMLError) -> None:
    mark: Any = error.problem_mark or error.context_mark or _At(0, 0)
    problem = str(error.problem or error.context or "cannot be read")
    if "'\\t'" in problem:
        tabbed = [n for n, line in enumerate(text.split("\n"), 1) if re.match(" *\t", line) and n != mark.line + 1]
        also = f" (tabs also start lines {', '.join(map(str, tabbed[:20]))})" if tabbed else ""
        source.add("recipe.tab", f"a tab stands where YAML wants spaces{also}", "Replace tabs by spaces.", mark)
        return
    context = f"{error.context}: " if error.context and error.problem else ""
    hint = _QUOTE if "mapping values" in problem or "cannot start any token" in problem else _INDENT
    source.add("recipe.syntax", f"not valid YAML: {shorten(context + problem, 160)}", hint, mark)


def _written(node: Any, source: _Source, key: Location | None) -> Written:
    place = source.location(node.start_mark)
    content: Any
    raw = None
    if isinstance(node, yaml.MappingNode):
        content = _members(node, source)
    elif isinstance(node, yaml.SequenceNode):
        content = [_written(item, source, None) for item in node.value]
    else:
        content, raw = scalar_value(node), str(node.value)
        if odd := _ODD_CHARACTER.search(raw):
            message = f"the character U+{ord(odd[0]):04X} is not allowed"
            source.add("recipe.character", message, "Remove it.", node.start_mark)
            content = raw = _ODD_CHARACTER.sub("", raw)
    return Written(content, place, key or place, source.folder, raw, source.setting)


def _members(node: yaml.MappingNode, source: _Source) -> dict[str, Written]:
    members: dict[str, Written] = {}
    for key_node, value_node in node.value:
        mark = key_node.start_mark
        name = scalar_value(key_node) if isinstance(key_node, yaml.ScalarNode) else None
        value = _written(value_node, source, source.location(mark))
        if not isinstance(name, str):
            _add_odd_key(source, key_node, mark)
        elif name in members:
            first = members[name].key.line
            where = f", first on line {first}" if first is not None else ""
            message = f"the key {shorten(name)!r} is written twice{where}"
            source.add("recipe.duplicate_key", message, "Keep one of them.", mark)
        else:
            members[name] = value
    return members


def _add_odd_key(source: _Source, node: Any, mark: Any) -> None:
    text = shorten(str(node.value)) if isinstance(node, yaml.ScalarNode) else None
    if text == "<<":
        message, hint = "the merge key << is not supported", "Put what recipes share into one that they extend."
    elif text is not None:
        message, hint = f"the key {text} is not text for YAML", f'Write it as "{text}".'
    else:
        message, hint = "a key must be text", "Write KEY: VALUE."
    source.add("recipe.wrong_type", message, hint, mark)
