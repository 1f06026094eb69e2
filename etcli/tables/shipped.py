"""Descriptions of etcli's own native sources: YAML files beside them, of a grammar of their own each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pydantic
import yaml

from etcli.common.errors import BuildError

D = TypeVar("D", bound=pydantic.BaseModel)


def read_shipped(path: Path, model: type[D], what: str) -> D:
    """The description in `path`; `what` names what it describes, for messages: `the native sources`.

    Raises:
        BuildError: code `build.sources`: it is missing or wrong.
    """
    try:
        return model.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise unusable(path, what, error.strerror or str(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError, pydantic.ValidationError) as error:
        raise unusable(path, what, " ".join(str(error).split())) from None


def check_there(path: Path, names: Iterable[str], what: str) -> None:
    """Whether every file that the description in `path` lists stands beside it.

    Raises:
        BuildError: code `build.sources`, naming those that do not.
    """
    absent = [name for name in names if not (path.parent / name).is_file()]
    if absent:
        raise unusable(path, what, f"it lists files that are not there: {', '.join(absent)}")


def unusable(path: Path, what: str, why: str) -> BuildError:
    """The error of a description that cannot be used."""
    return BuildError(
        f"{what} cannot be used: {why}",
        code="build.sources",
        hint="Reinstall etcli, or undo the change.",
        file=path,
    )
