"""`extends` and `base`: the two keys that say how a recipe file is read, and are no part of the recipe that comes out."""

from __future__ import annotations

from dataclasses import replace
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


def read_chain(file: RecipeFile, problems: list[Problem]) -> tuple[Written, Path]:
    """The mapping in `file` merged over all it extends, and the folder that the file's own relative paths start from.

    Every file is read even when another has problems; they are added to `problems`.
    """
    layers: list[Written] = []
    base = file.folder
    seen: list[Path] = []
    current: RecipeFile | None = file
    while current is not None:
        layer, parent = _read_layer(current, problems)
        if not layers:
            base = layer.folder
        layers.append(layer)
        seen.append(current.path.resolve())
        current = _next(layer, parent, seen, problems) if parent is not None else None
    merged = layers.pop()
    while layers:
        merged = merge(merged, layers.pop())
    return merged, base


def _read_layer(file: RecipeFile, problems: list[Problem]) -> tuple[Written, Written | None]:
    """The recipe's mapping in one file without the file keys, its folder settled, and the value of `extends`."""
    place = Location(file.path, None, None)
    empty = Written({}, place, place, file.folder)
    try:
        root, found = read_text(file.text(), file=file.path, folder=file.folder)
    except EtcliError as error:
        problems.extend(error.problems)
        return empty, None
    problems.extend(found)
    if root is None:
        if not found:
            problems.append(
                empty.problem(
                    "recipe.empty", f"{file.path} holds no recipe", "Start from a template: etcli recipe new --help"
                )
            )
        return empty, None
    if root.mapping is None:
        problems.append(
            root.problem("recipe.wrong_type", "a recipe is a mapping of keys to values", "Write KEY: VALUE.")
        )
        return empty, None
    members = dict(normalised(root).mapping or {})
    parent = _file_key(members, "extends", problems)
    base = _file_key(members, "base", problems)
    folder = file.folder if base is None else (file.folder / Path(base.content).expanduser()).absolute()
    return _in_folder(replace(root, content=members), folder), parent


def _file_key(members: dict[str, Written], key: str, problems: list[Problem]) -> Written | None:
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
            parent.problem("recipe.extends_cycle", f"more than {MAX_CHAIN} recipes extend one another", "Use fewer.")
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
