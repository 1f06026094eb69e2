"""The reference as a subprocess: the right answer of the real default model, and failures as this process's errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from etcli.common.errors import CheckpointError, UsageError
from etcli.export import reference
from etcli.export.reference import ReferenceResult, judge_tokens, run_reference
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe

PROMPT = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2]
PROMPT += [198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 3085, 47, 2, 198, 1, 520, 9531, 198]
ANSWER = (504, 3575, 282, 3085, 314, 19081, 30, 2)


def recipe_for(path: Path) -> LoadedRecipe:
    document = {"name": "reference", "model": {"source": str(path)}}
    recipe = Recipe.model_validate(document)
    return LoadedRecipe(recipe=recipe, path=Path("recipe.yaml"), base=path.parent, document=document)


@pytest.fixture
def console() -> Console:
    return Console(verbosity=-1)


def test_the_right_tokens_of_the_default_model(default_model: Path, console: Console) -> None:
    result = run_reference(
        recipe_for(default_model), prompt_ids=PROMPT, max_new_tokens=64, cache_length=512, console=console
    )
    assert result.tokens == ANSWER
    assert result.stop_reason == "stop_id"


def test_judging_finds_the_one_wrong_token(default_model: Path, console: Console) -> None:
    altered = [*ANSWER[:5], 7042, *ANSWER[6:]]
    judged = judge_tokens(
        recipe_for(default_model), prompt_ids=PROMPT, tokens=altered, cache_length=512, console=console
    )
    assert [item.token for item in judged] == altered
    assert [item.best for item in judged[:6]] == list(ANSWER[:6])
    assert [item.gap for item in judged[:5]] == [0.0] * 5
    assert judged[5].gap > 0.5


def test_a_wrong_prompt_is_a_usage_error_here(default_model: Path, console: Console) -> None:
    with pytest.raises(UsageError, match="49152"):
        run_reference(recipe_for(default_model), prompt_ids=[49152], max_new_tokens=4, cache_length=8, console=console)


def test_a_cut_off_checkpoint_is_a_checkpoint_error_here(default_model: Path, tmp_path: Path, console: Console) -> None:
    torn = tmp_path / "torn.gguf"
    with default_model.open("rb") as whole:
        torn.write_bytes(whole.read(50_000_000))
    with pytest.raises(CheckpointError):
        run_reference(recipe_for(torn), prompt_ids=PROMPT, max_new_tokens=4, cache_length=64, console=console)


def test_a_missing_checkpoint_starts_no_process(tmp_path: Path, console: Console) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        run_reference(
            recipe_for(tmp_path / "none.gguf"), prompt_ids=PROMPT, max_new_tokens=4, cache_length=64, console=console
        )


@pytest.mark.parametrize(
    ("held", "verbosity", "said"), [(False, 0, "read anew"), (True, 1, "in memory"), (True, 0, "")]
)
def test_how_the_weights_are_held_is_said(monkeypatch, capsys, tmp_path, held: bool, verbosity: int, said: str) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    def instead(module: str, job: Mapping[str, Any], *, on_event: Any, **rest: Any) -> dict[str, Any]:
        on_event({"event": "weights", "held": held, "bytes": 32_000_000_000})
        on_event({"event": "token", "index": 0, "id": 7})
        return {"tokens": [7], "stop_reason": "stop_id"}

    monkeypatch.setattr(reference, "run_isolated", instead)
    console = Console(verbosity=verbosity)
    loaded = recipe_for(tmp_path / "model.gguf")
    result = run_reference(loaded, prompt_ids=[1], max_new_tokens=4, cache_length=8, console=console)
    assert result == ReferenceResult((7,), "stop_id")
    notes = capsys.readouterr().err
    assert "1/4" in notes
    assert (said in notes and "32.0 GB" in notes) if said else ("GB" not in notes)


def test_the_parent_never_imports_torch() -> None:
    program = "import sys, etcli.export.reference; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
