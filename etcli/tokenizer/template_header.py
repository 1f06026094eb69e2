"""Special tokens carried inside a saved chat template.

A bundle holds `tokenizer.json` and `chat_template.jinja` and nothing that says which text `bos_token` stands for. A template that asks for such
names gets them set on its first lines, so it renders alike wherever it goes. A template that asks for none is kept as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_LINE = re.compile(r'\{% set (bos_token|eos_token|unk_token|pad_token) = ("(?:[^"\\]|\\.)*") %\}\n')


def with_header(template: str, special_tokens: Mapping[str, str]) -> str:
    """`template` with the special tokens it mentions set in front, a line each.

    Chat templates are rendered with `trim_blocks`, under which these lines leave nothing and the template still begins a line.
    """
    used = [name for name in sorted(special_tokens) if re.search(rf"\b{name}\b", template)]
    # JSON's escapes are a subset of Python's, which Jinja reads, but for pairs of surrogates, which `ensure_ascii` would make.
    lines = [(name, json.dumps(special_tokens[name], ensure_ascii=False)) for name in used]
    return "".join(f"{{% set {name} = {text} %}}\n" for name, text in lines) + template


def split_header(template: str) -> tuple[dict[str, str], str]:
    """The special tokens set in front of a saved template, and the template as it was."""
    found: dict[str, str] = {}
    at = 0
    while match := _LINE.match(template, at):
        try:
            found[match[1]] = json.loads(match[2])
        except ValueError:
            break
        at = match.end()
    return found, template[at:]
