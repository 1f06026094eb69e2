"""What `model.quantize: aqlm` measures on with the default model's tokenizer, and what it leaves of the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcli.common.process import run
from etcli.export.aqlm.calibration import FILE, LONGEST, MOST, USUAL, calibration_ids
from etcli.recipe.builtin import builtin_recipes
from etcli.recipe.loader import load
from etcli.tokenizer.opening import open_tokenizer

IDS = Path(__file__).with_name("calibration_ids.json")


def test_the_ids_of_the_default_model(default_model: Path) -> None:
    found = calibration_ids(open_tokenizer(default_model), 2048)
    assert found == json.loads(IDS.read_text())
    assert abs(sum(map(len, found)) - USUAL) < 0.1 * USUAL


def test_no_prompt_of_a_recipe_is_among_the_texts() -> None:
    text = FILE.read_text(encoding="utf-8").lower()
    for recipe in builtin_recipes():
        assert load(recipe.name).recipe.run.prompt.lower() not in text
    for word in ("japan", "tokyo", "capital"):
        assert word not in text


def test_small_tokenizers_and_short_contexts_are_cut(random_llama) -> None:  # type: ignore[no-untyped-def]
    tokenizer = open_tokenizer(random_llama(tokenizer=True))
    whole = calibration_ids(tokenizer, 4096)
    assert sum(map(len, whole)) == MOST
    assert max(map(len, whole)) == LONGEST
    short = calibration_ids(tokenizer, 50)
    assert max(map(len, short)) == 50
    assert all(cut == full[:50] for cut, full in zip(short, whole, strict=False))
