"""Renders a chat template, a program that came with a checkpoint, in a process of its own.

Two walls: Jinja's immutable sandbox (no private attribute, no change of what it is given, short ranges), and the limits of the process (seconds,
memory, no file written), which also end what the sandbox allows, such as a string doubled forty times or nested loops. This module runs in
that process and imports nothing of etcli.

The environment is what templates are written for, that of transformers' `apply_chat_template`: `raise_exception`, `strftime_now`, a `tojson` that
keeps letters as they are, loop controls, `{% generation %}`, and blocks that leave no blank lines.
"""

from __future__ import annotations

import datetime
import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

import jinja2
import jinja2.exceptions
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

CPU_SECONDS = 3
MEMORY_BYTES = 1 << 30


class Refused(Exception):
    """The template itself refuses the messages, through `raise_exception`."""


class TooLong(Exception):
    """The text grew beyond its limit."""


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the model's own words for training; here it only contains them."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own convention

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(template: str, variables: Mapping[str, Any], *, limit: int) -> str:
    """The text of `template`, of at most `limit` characters.

    Raises:
        Refused, TooLong, jinja2.TemplateError, MemoryError, RecursionError, and whatever else the template does wrong.
    """
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    now = datetime.datetime.now()
    env.filters["tojson"] = _to_json
    env.globals["raise_exception"] = _raise_exception
    env.globals["strftime_now"] = now.strftime
    parts: list[str] = []
    length = 0
    for part in env.from_string(template).generate(**variables):
        length += len(part)
        if length > limit:
            raise TooLong
        parts.append(part)
    return "".join(parts)


def _raise_exception(message: object) -> None:
    raise Refused(str(message)[:1000])


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main() -> None:
    """Reads `{template, variables, limit}` from stdin and writes `{text}` or `{error, message}` to stdout, both JSON."""
    request = json.load(sys.stdin)
    for kind, value in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    try:
        answer = {"text": render(request["template"], request["variables"], limit=request["limit"])}
    except Refused as error:
        answer = {"error": "refused", "message": str(error)}
    except TooLong:
        answer = {"error": "long", "message": ""}
    except MemoryError:
        answer = {"error": "memory", "message": ""}
    except jinja2.exceptions.SecurityError as error:
        answer = {"error": "security", "message": str(error)[:300]}
    except jinja2.TemplateSyntaxError as error:
        answer = {"error": "syntax", "message": f"line {error.lineno}: {str(error.message)[:300]}"}
    except Exception as error:
        answer = {"error": "failed", "message": f"{type(error).__name__}: {str(error)[:300]}"}
    json.dump(answer, sys.stdout)
