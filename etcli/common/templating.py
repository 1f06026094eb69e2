"""The one Jinja environment for the product's own templates, with the `sh` and `cmake` quoting filters.

Templates of a checkpoint (chat templates) are untrusted and never come here; see `tokenizer/chat.py`.
"""

from __future__ import annotations

import functools
import shlex
from typing import Any

import jinja2

from etcli.common.assets import asset_dir


def quote_sh(value: object) -> str:
    """`value` as one word of a POSIX shell."""
    return shlex.quote(str(value))


def quote_cmake(value: object) -> str:
    """`value` as one CMake bracket argument, in which nothing is expanded.

    Raises:
        ValueError: the value holds a NUL or a newline, which no path or flag of ours has.
    """
    text = str(value)
    if "\0" in text or "\n" in text:
        raise ValueError(f"{text!r} cannot stand in a CMake file")
    level = ""
    while f"]{level}]" in text or text.endswith(f"]{level}"):
        level += "="
    return f"[{level}[{text}]{level}]"


@functools.lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The environment over `templates/`: undefined names are errors, blocks leave no blank lines."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(asset_dir("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - the output is CMake and shell, quoted by the filters below
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["sh"] = quote_sh
    env.filters["cmake"] = quote_cmake
    return env


def render(template: str, **values: Any) -> str:
    """The text of `templates/<template>` with `values` filled in."""
    return environment().get_template(template).render(**values)


@functools.lru_cache(maxsize=1)
def page_environment() -> jinja2.Environment:
    """The environment for pages: as `environment`, but every value is escaped for HTML, and there is nothing to quote for a shell."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(asset_dir("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_page(template: str, **values: Any) -> str:
    """The HTML of `templates/<template>` with `values` filled in, each escaped."""
    return page_environment().get_template(template).render(**values)
