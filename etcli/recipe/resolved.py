"""A resolved recipe as YAML: everything merged and defaults filled in, variables as they were written.

Loading the text again gives an equal recipe whose relative paths mean the same, wherever the file stands: `base` says where they start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from etcli.common.files import write_if_changed
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.scalars import add_yaml_1_2_numbers


class _Dumper(yaml.SafeDumper):
    """Quotes what the reader would take for a number; writes no aliases, which the reader refuses."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


add_yaml_1_2_numbers(_Dumper)


def dump(values: Mapping[str, Any]) -> str:
    """`values` as YAML that the recipe reader reads back equal; long text stays on its line."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)


def resolved_document(loaded: LoadedRecipe) -> dict[str, Any]:
    """The whole recipe as plain values in the schema's order, variables unexpanded; keys that are absent by default are left out."""
    values = loaded.recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _laid_over(values, loaded.document)


def resolved_text(loaded: LoadedRecipe) -> str:
    """The same as YAML, for people."""
    return dump(resolved_document(loaded))


def write_resolved(loaded: LoadedRecipe, path: Path) -> None:
    """Write the resolved recipe to `path`, atomically; an equal file and its time are left alone."""
    folder = path.absolute().parent
    lines = [
        "# Written by etcli: what the folder beside this file was made from. Variables stand as they were in the recipe.\n"
    ]
    if loaded.base != folder:
        base = os.path.relpath(loaded.base.resolve(), folder.resolve())
        lines.append(dump({"base": base.replace("${", "$${")}))
    write_if_changed(path, "".join([*lines, resolved_text(loaded)]))


def _laid_over(values: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the text of `written` in place of what its variables expanded to."""
    result = dict(values)
    for key, value in written.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = _laid_over(result[key], value)
        elif value is not None:
            result[key] = value
    return result
