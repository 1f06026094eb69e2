"""The commented recipe that `etcli recipe new` writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from etcli.common.errors import UsageError
from etcli.common.files import write_atomically
from etcli.manifests.base import NAME_PATTERN
from etcli.recipe.builtin import DEFAULT, builtin_recipe
from etcli.recipe.ci import WrittenCi, check_ci, write_ci
from etcli.recipe.loader import load
from etcli.recipe.resolved import dump
from etcli.recipe.variables import HINT, malformed
from etcli.recipe.written import shorten

_INHERITED = """\
# A recipe for etcli. Every key is described by `etcli recipe schema`; `etcli recipe show` prints this one with all defaults.
name: {name}

# The model and everything that is not written here come from this built-in recipe; `etcli recipe list` shows the others.
extends: {parent}

# model:
#   source: PATH                # your own checkpoint instead: a GGUF file, or a Hugging Face folder of safetensors
#   sha256: null                # the inherited hash is the built-in file's
"""

_OWN = """\
# A recipe for etcli. Every key is described by `etcli recipe schema`; `etcli recipe show` prints this one with all defaults.
name: {name}

model:
  source: {source}
"""

_COMMON = """
export:
{export}

# build:
#   target: linux-aarch64       # by default the one that fits the device

# deploy:
#   dir: /data/local/tmp/etcli/{name}

run:
  prompt: What is the capital of Japan?
  chat: true                    # put the prompt into the model's own chat template
  max_new_tokens: 64
"""


@dataclass(frozen=True)
class StarterExport:
    """The `export` of a starter; `why` is the remark beside the precision."""

    precision: str = "fp32"
    embedding: str | None = None
    chunks: int = 1
    shapes: str = "[32t512c, 1t512c]"
    why: str = ""

    def divided(self, chunks: int) -> StarterExport:
        """The same with so many chunks."""
        return replace(self, chunks=chunks)

    def text(self) -> str:
        """The lines of the mapping."""
        return "\n".join(
            f"  {f'{key}: {value}':<29} {f'# {why}' if why else ''}".rstrip() for key, value, why in self._rows()
        )

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            ("backend", "xnnpack", "portable | xnnpack"),
            ("precision", self.precision, self.why),
            *([("embedding", self.embedding, "the table of tokens, with 8-bit weights")] if self.embedding else []),
            ("chunks", str(self.chunks), "programs that the layers are divided into, equally"),
            (
                "shapes",
                self.shapes,
                "tokens per call and cache length: prompt shapes, and exactly one of a single token",
            ),
        ]


def starter_text(name: str, source: str | None = None, export: StarterExport | None = None) -> str:
    """A recipe called `name` that reads `source`, or inherits the default model without one; it loads as it is."""
    if source is None:
        chosen = export or StarterExport(chunks=5)
        return _INHERITED.format(name=_scalar(name), parent=DEFAULT) + _COMMON.format(name=name, export=chosen.text())
    chosen = export or StarterExport()
    return _OWN.format(name=_scalar(name), source=_scalar(source)) + _COMMON.format(name=name, export=chosen.text())


def write_starter(
    path: Path, *, name: str | None = None, source: str | None = None, export: StarterExport | None = None
) -> Path:
    """Write a starter recipe to a new file and return its path.

    Args:
        name: the recipe's name, by default made from the folder's.
        source: the checkpoint as `model.source` has it, by default the built-in one.
        export: None for the usual one.

    Raises:
        UsageError: there is such a file already, `name` is no name, `source` has a broken `${`, or the folder cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists", code="recipe.exists", hint="Give another path, or remove it.", file=path)
    name = starter_name(path, name)
    if not re.fullmatch(NAME_PATTERN, name) or re.search(r"[0-9]+t[0-9]+c", name):
        raise UsageError(
            f"{name!r} is not a recipe name",
            code="recipe.wrong_value",
            hint="Use lower-case letters, digits, '.', '_' and '-', starting with a letter or digit, without digits-t-digits-c.",
        )
    wrong = malformed(source) if source is not None else None
    if wrong is not None:
        raise UsageError(f"{shorten(wrong)} in the source is not a variable", code="recipe.variable", hint=HINT)
    try:
        write_atomically(path, starter_text(name, source, export))
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", code="recipe.unwritable", hint="Give another path.", file=path
        ) from None
    return path


def starter_name(path: Path, name: str | None) -> str:
    """The name of a starter in `path`: `name`, or one made from its folder's."""
    return name_from(path.absolute().parent.name) if name is None else name


@dataclass(frozen=True)
class New:
    """What `write_new` wrote: whether the recipe was among it, and the job files."""

    starter: bool
    ci: WrittenCi


def write_new(
    path: Path,
    *,
    name: str | None = None,
    source: str | None = None,
    ci: Sequence[str] = (),
    export: StarterExport | None = None,
) -> New:
    """A starter recipe in `path`, and a job file for each CI system of `ci`, which may also be written for a recipe that is there.

    Raises:
        UsageError: as `write_starter`, but for an existing recipe where only job files are wanted; as `write_ci`. Nothing is written then.
        RecipeError: the recipe that is there is wrong.
    """
    kinds = tuple(dict.fromkeys(ci))
    there = bool(kinds) and path.is_file() and name is None and source is None
    if kinds:
        check_ci(kinds, path)
    if there:
        load(f"./{path}" if not path.is_absolute() else str(path))
    else:
        write_starter(path, name=name, source=source, export=export)
    return New(not there, write_ci(kinds, path) if kinds else WrittenCi(()))


def name_from(text: str) -> str:
    """A recipe name as near to `text` as the rules allow."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower())
    name = re.sub(r"(?<=[0-9])t(?=[0-9]+c)", "-", name).strip("-._")[:64]
    if builtin_recipe(name) is not None:
        name = f"my-{name}"
    return name or "my-model"


def _scalar(text: str) -> str:
    """`text` as a YAML scalar, quoted where it has to be; a `${` in it stays a variable."""
    return dump({"k": text})[3:].rstrip("\n")
