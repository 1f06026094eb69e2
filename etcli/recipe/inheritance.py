"""`extends` and `base`: the two keys that say how a recipe file is read, and are no part of the recipe that comes out."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etcli.common.errors import EtcliError, Problem
from etcli.recipe.loaded import Location
from etcli.recipe.lookup import RecipeFile, find_named
from etcli.recipe.normal import normalised
from etcli.recipe.variables import expand
from etcli.recipe.written import Written, merge
from etcli.recipe.yamltext import read_text

FILE_KEYS = {
    "extends": "A recipe to inherit from: a path, or a built-in recipe's name. Mappings merge, lists and values replace",
    "base": "Folder that relative paths of this file start from, by default the file's own",
}
MAX_CHAIN = 16


@dataclass(frozen=True)
class Chain:
    """A file's mapping merged over all it extends.

    `base` is the folder that the file's own relative paths start from. `complete` is whether every file could be read: where not, a
    missing key says nothing.
    """

    written: Written
    base: Path
    complete: bool


def read_chain(file: RecipeFile, problems: list[Problem]) -> Chain:
    """The mapping in `file` with what it inherits; what is wrong in any of the files is added to `problems`."""
    layers: list[Written] = []
    seen: list[Path] = []
    current: RecipeFile | None = file
    complete = True
    while current is not None:
        seen.append(current.path.resolve())
        layer, parent, whole = _read_layer(current, problems)
        complete &= whole
        if layer is None:
            break
        layers.append(layer)
        current = None
        if parent is not None:
            current = _next(layer, parent, seen, problems)
            complete &= current is not None
    if not layers:
        place = Location(file.path, None, None)
        return Chain(Written({}, place, place, file.folder), file.folder, complete=False)
    base = layers[0].folder
    return Chain(functools.reduce(lambda above, below: merge(below, above), layers), base, complete)


def _read_layer(file: RecipeFile, problems: list[Problem]) -> tuple[Written | None, Written | None, bool]:
    """The recipe's mapping in one file without the file keys, its folder settled; the value of `extends`; whether both could be read."""
    place = Location(file.path, None, None)
    empty = Written({}, place, place, file.folder)
    try:
        root, found = read_text(file.text(), file=file.path, folder=file.folder)
    except EtcliError as error:
        problems.extend(error.problems)
        return None, None, False
    problems.extend(found)
    if root is None or root.content is None:
        if not found:
            problems.append(
                empty.problem(
                    "recipe.empty", f"{file.path} holds no recipe", "Start from a template: etcli recipe new --help"
                )
            )
        return None, None, False
    if root.mapping is None:
        problems.append(
            root.problem("recipe.wrong_type", "a recipe is a mapping of keys to values", "Write KEY: VALUE.")
        )
        return None, None, False
    members = dict(normalised(root).mapping or {})
    wanted = "extends" in members
    parent = _file_key(members, "extends", problems)
    base = _file_key(members, "base", problems)
    folder = file.folder
    if base is not None:
        try:
            folder = (file.folder / Path(base.content).expanduser()).absolute()
        except RuntimeError as error:
            problems.append(base.problem("recipe.wrong_value", f"base: {error}", "Write the folder's whole path."))
    return _in_folder(replace(root, content=members), folder), parent, wanted == (parent is not None)


def _file_key(members: dict[str, Written], key: str, problems: list[Problem]) -> Written | None:
    """Take one of the file keys out of `members`, checked and expanded; None where it is absent or wrong."""
    value = members.pop(key, None)
    if value is None:
        return None
    if not isinstance(value.content, str) or not value.content:
        problems.append(value.problem("recipe.wrong_type", f"{key} must be text", f"{key}: {FILE_KEYS[key]}."))
        return None
    before = len(problems)
    value = expand(value, problems)
    return value if len(problems) == before else None


def _next(layer: Written, parent: Written, seen: list[Path], problems: list[Problem]) -> RecipeFile | None:
    # A path in `extends` starts from the file's own folder, whatever its `base` says.
    try:
        found = find_named(parent.content, parent.folder)
    except EtcliError as error:
        problems.extend(parent.problem(item.code, item.message, item.hint) for item in error.problems)
        return None
    if found.path.resolve() in seen:
        names = " -> ".join(path.name for path in [*seen, found.path])
        problems.append(
            parent.problem("recipe.extends_cycle", f"recipes extend one another: {names}", "Break the cycle.")
        )
        return None
    if len(seen) >= MAX_CHAIN:
        problems.append(
            parent.problem("recipe.extends_depth", f"more than {MAX_CHAIN} recipes extend one another", "Use fewer.")
        )
        return None
    if found.builtin:
        return replace(found, folder=layer.folder)
    return found


def _in_folder(value: Written, folder: Path) -> Written:
    content: Any = value.content
    if isinstance(content, dict):
        content = {key: _in_folder(item, folder) for key, item in content.items()}
    elif isinstance(content, list):
        content = [_in_folder(item, folder) for item in content]
    return replace(value, content=content, folder=folder)
