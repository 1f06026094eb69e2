"""Job files for CI systems that `etcli recipe new --ci` writes, from `templates/ci/`.

A CI system reads them at the top of a repository, so that is where they are written: in the nearest folder above the recipe that holds `.git`.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import etcli
from etcli.common.errors import UsageError
from etcli.common.files import write_atomically
from etcli.common.templating import render


@dataclass(frozen=True)
class CiSystem:
    """A CI system: the template, where its file stands in a repository, and the file that includes it where the system reads that alone."""

    template: str
    place: str
    entry: str | None = None

    @property
    def inclusion(self) -> str:
        """The text by which `entry` includes `place`."""
        return f"include:\n  - local: {self.place}\n"


SYSTEMS = {
    "github": CiSystem("ci/github.yml.j2", ".github/workflows/etcli.yml"),
    "gitlab": CiSystem("ci/gitlab.yml.j2", ".gitlab/etcli.yml", entry=".gitlab-ci.yml"),
}

# What means the same to YAML, to a shell inside quotes, and to the expressions of CI systems.
_PLAIN = re.compile(r"[\w./+@=, -]+", re.ASCII)


TO_FILL_IN = (
    "before the job can pass, fill in ETCLI (a wheel's path or URL, or git+https://...@COMMIT: no package index has etcli) and ETCLI_TORCH_INDEX "
    "(PyTorch's own index of CPU builds, where pip knows none), at the top of the file or as variables of your CI"
)
"""What nothing but the user knows, as a sentence."""


@dataclass(frozen=True)
class WrittenCi:
    """The files that were written, and what the user has to add to a file of theirs."""

    files: tuple[Path, ...]
    remarks: tuple[str, ...] = ()


def ci_text(system: str, recipes: Sequence[str]) -> str:
    """The job file of `system` for `recipes`, paths from the top of the repository."""
    one = SYSTEMS[system]
    install = render("ci/install.sh.j2", place=one.place).rstrip("\n")
    return render(
        one.template,
        version=etcli.__version__,
        recipes=list(recipes),
        place=one.place,
        install=install,
        torch=_torch(),
    )


def _torch() -> str:
    """The CPU build of the PyTorch that this etcli asks for, as pip takes it."""
    asked = (re.fullmatch(r"torch==([0-9.]+)", text) for text in importlib.metadata.requires("etcli") or ())
    release = next((match[1] for match in asked if match is not None), None)
    return f"torch=={release or importlib.metadata.version('torch').partition('+')[0]}+cpu"


def check_ci(systems: Sequence[str], recipe: Path) -> None:
    """Whether `write_ci` can be carried out.

    Raises:
        UsageError: there is such a file already, or the recipe's path cannot stand in it.
    """
    root, path = _places(recipe)
    if not _PLAIN.fullmatch(path) or path.startswith("-"):
        raise UsageError(
            f"{path!r} cannot stand in a CI job file",
            code="recipe.ci_path",
            hint="Give the recipe a path of letters, digits and . / _ - + @ = within the repository.",
            file=recipe,
        )
    for system in systems:
        place = root / SYSTEMS[system].place
        if place.exists() or place.is_symlink():
            raise UsageError(
                f"{place} exists",
                code="recipe.exists",
                hint="Remove it to have it written anew, or add the recipe to its `etcli recipe list` line.",
                file=place,
            )


def write_ci(systems: Sequence[str], recipe: Path) -> WrittenCi:
    """Write the job file of each of `systems` for `recipe`, at the top of the repository that it is in, or beside it where it is in none.

    A `.gitlab-ci.yml` that is there is left alone: what has to be added to it is among the remarks.

    Raises:
        UsageError: as `check_ci`, or a folder cannot be written.
    """
    check_ci(systems, recipe)
    root, path = _places(recipe)
    files: list[Path] = []
    remarks = []
    try:
        for system in systems:
            one = SYSTEMS[system]
            files.append(root / one.place)
            write_atomically(files[-1], ci_text(system, [path]))
            if one.entry is None:
                continue
            entry = root / one.entry
            if entry.exists() or entry.is_symlink():
                remarks.append(f"add to {entry}:\n{one.inclusion}".rstrip())
            else:
                files.append(entry)
                write_atomically(entry, one.inclusion)
    except OSError as error:
        raise UsageError(
            f"cannot write {files[-1]}: {error.strerror}",
            code="recipe.unwritable",
            hint="See to the folder's permissions and space.",
            file=files[-1],
        ) from None
    return WrittenCi(tuple(files), (*remarks, TO_FILL_IN))


def _places(recipe: Path) -> tuple[Path, str]:
    """The top of the repository, and the recipe's path from there."""
    path = recipe.absolute().parent.resolve() / recipe.name
    root = next((folder for folder in path.parents if (folder / ".git").exists()), path.parent)
    return root, path.relative_to(root).as_posix()
