"""`--set key.sub=value`: one value laid over the recipe, read by the same rules as the file."""

from __future__ import annotations

import re
from pathlib import Path

from etcli.common.errors import Problem
from etcli.recipe.inheritance import FILE_KEYS
from etcli.recipe.loaded import Location
from etcli.recipe.written import Written, shorten
from etcli.recipe.yamltext import read_text

_KEY = re.compile(r"[^\s.=]+(\.[^\s.=]+)*")
_NOWHERE = Location(None, None, None)


def read_setting(setting: str, folder: Path, problems: list[Problem]) -> Written | None:
    """The nested mapping that one `--set` argument stands for, or None where it cannot be read."""
    key, equals, text = setting.partition("=")
    key = key.strip()
    here = Written(None, _NOWHERE, _NOWHERE, folder, setting=setting)
    if not equals or not _KEY.fullmatch(key):
        problems.append(here.problem("recipe.set", "this is not KEY.SUB=VALUE", "As in: --set run.max_new_tokens=16"))
        return None
    words = key.split(".")
    if words[0] in FILE_KEYS:
        problems.append(
            here.problem(
                "recipe.set", f"{words[0]} can only be written in a recipe file", f"Put {words[0]} into the file."
            )
        )
        return None
    value, found = read_text(text, file=None, folder=folder, setting=setting)
    problems.extend(found)
    if found:
        return None
    if value is None:
        value = Written(None, _NOWHERE, _NOWHERE, folder, raw="", setting=setting)
    elif _is_block(text, value):
        problems.append(
            here.problem(
                "recipe.set",
                "this is neither a plain value nor a [list] or {mapping}",
                f"""Put text into quotes: --set '{shorten(key)}="..."'""",
            )
        )
        return None
    for word in reversed(words):
        value = Written({word: value}, _NOWHERE, _NOWHERE, folder, setting=setting)
    return value


def _is_block(text: str, value: Written) -> bool:
    """Whether YAML took a lone text for a block mapping or list (`Answer: yes`), or folded its lines into one."""
    first = text.lstrip()[:1]
    if isinstance(value.content, dict):
        return first != "{"
    if isinstance(value.content, list):
        return first != "["
    return "\n" in text.strip() and first not in ("'", '"')
