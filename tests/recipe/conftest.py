"""Recipe files in a folder of the test, and problems as (code, line, column)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from etcli.common.errors import EtcliError, ExitCode, Problem, RecipeError
from etcli.recipe.loader import load

MINIMAL = "name: tiny\nmodel: {source: model.gguf}\n"


@pytest.fixture(autouse=True)
def _folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write dedented text (or bytes) to a file below the test's folder and return its path."""

    def write_file(text: str | bytes, name: str = "recipe.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return path

    return write_file


@pytest.fixture
def problems_of(write: Callable[..., Path]) -> Callable[..., tuple[Problem, ...]]:
    """Load a recipe's text, which must fail, and return its problems."""

    def load_text(text: str | bytes, sets: Sequence[str] = ()) -> tuple[Problem, ...]:
        path = write(text)
        with pytest.raises(EtcliError) as caught:
            load(str(path), sets)
        assert isinstance(caught.value, RecipeError)
        assert all(problem.exit_code == ExitCode.USAGE for problem in caught.value.problems)
        return caught.value.problems

    return load_text


@pytest.fixture
def minimal() -> str:
    """The shortest recipe that loads."""
    return MINIMAL
