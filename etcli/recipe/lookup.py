"""Which file a recipe argument or an `extends` means, and its text."""

from __future__ import annotations

import difflib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import RecipeError
from etcli.recipe.builtin import DEFAULT, builtin_recipe, builtin_recipes, is_builtin_file
from etcli.recipe.written import shorten

LOCAL_FILE = "etcli.yaml"
MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class RecipeFile:
    """A recipe file. `folder` is what its relative paths start from; a built-in recipe has none of its own and takes its user's.

    `content` is the text of one that is not written yet.
    """

    path: Path
    folder: Path
    builtin: bool
    content: str | None = None

    def text(self) -> str:
        """The file's text.

        Raises:
            RecipeError: it cannot be read, is too large, or is not UTF-8.
        """
        if self.content is not None:
            return self.content
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            raise RecipeError(
                f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}",
                code="recipe.unreadable",
                hint="Check the file's permissions.",
                file=self.path,
            ) from None
        if len(content) > MAX_BYTES:
            raise RecipeError(
                f"{self.path} is larger than {MAX_BYTES // 1024} KiB, which no recipe is",
                code="recipe.too_large",
                hint="Name the recipe, not the checkpoint; put long texts into files of their own.",
                file=self.path,
            )
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = content[: error.start].decode("utf-8-sig")
            raise RecipeError(
                f"{self.path} is not UTF-8 text (byte 0x{content[error.start]:02X} at offset {error.start})",
                code="recipe.encoding",
                hint="Save it as UTF-8.",
                file=self.path,
                line=before.count("\n") + 1,
                column=len(before) - before.rfind("\n"),
            ) from None


def find_recipe(argument: str | None) -> RecipeFile:
    """The file that a command's RECIPE means: the argument, `$ETCLI_RECIPE`, `./etcli.yaml`, the built-in default, in this order.

    Raises:
        RecipeError: there is no such recipe.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise RecipeError(
            "the current folder is gone", code="recipe.not_found", hint="Change to a folder that exists."
        ) from None
    if argument is not None:
        return find_named(argument, here)
    configured = os.environ.get("ETCLI_RECIPE")
    if configured:
        return find_named(configured, here, origin=" (from $ETCLI_RECIPE)")
    if means_default(argument):
        return find_named(DEFAULT, here)
    return find_named(f"./{LOCAL_FILE}", here)


def means_default(argument: str | None) -> bool:
    """Whether a command with this RECIPE, typed here, is about the built-in default because nothing else is named."""
    return argument is None and not os.environ.get("ETCLI_RECIPE") and not os.path.lexists(LOCAL_FILE)


def find_named(name: str, folder: Path, *, origin: str = "") -> RecipeFile:
    """The recipe `name`: a built-in recipe's name, or a path that starts from `folder`.

    A bare word is a built-in recipe, if there is one of that name; `./word` is always a path.

    Raises:
        RecipeError: there is none, or it is a folder.
    """
    is_path = os.sep in name or name.startswith("~") or Path(name).suffix in (".yaml", ".yml")
    if not is_path and (found := builtin_recipe(name)) is not None:
        return RecipeFile(found.path, folder, builtin=True)
    try:
        path = (folder / Path(name).expanduser()).absolute()
        mode = path.stat().st_mode
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_found(name, origin, error) from None
    if stat.S_ISDIR(mode):
        inside = path / LOCAL_FILE
        raise RecipeError(
            f"{shorten(name)}{origin} is a folder, not a recipe",
            code="recipe.is_a_folder",
            hint=f"Use {inside}"
            if inside.is_file()
            else "Name the YAML file in it, or make one with: etcli recipe new",
            file=path,
        )
    if not stat.S_ISREG(mode):
        raise RecipeError(
            f"{shorten(name)}{origin} is not a regular file",
            code="recipe.not_a_file",
            hint="Save the recipe as a file.",
            file=path,
        )
    builtin = is_builtin_file(path)
    return RecipeFile(path, folder if builtin else path.parent, builtin)


def _not_found(name: str, origin: str, error: Exception) -> RecipeError:
    reason = error.strerror if isinstance(error, OSError) and not isinstance(error, FileNotFoundError) else None
    names = [recipe.name for recipe in builtin_recipes()]
    close = difflib.get_close_matches(name, names, n=1)
    return RecipeError(
        f"there is no recipe {shorten(name)!r}{origin}" + (f": {reason}" if reason else ""),
        code="recipe.not_found",
        hint=f"Did you mean {close[0]}?" if close else "Give a path, or a name that etcli recipe list shows.",
    )
