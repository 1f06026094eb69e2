"""What `model.quantize: aqlm` measures on with the default model's tokenizer, and what it leaves of the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.export.aqlm.calibration import FILE, LONGEST, MOST, USUAL, calibration_ids
from etcli.export.evaluation import evaluation_ids, evaluation_text
from etcli.export.evaluation_worker import compared
from etcli.export.source import checkpoint_source
from etcli.llama.passes import HeldPasses
from etcli.llama.reference import ReferenceDecoder
from etcli.ops.aqlm import use_compiled
from etcli.output.console import Console
from etcli.recipe.builtin import builtin_recipes
from etcli.recipe.loader import load
from etcli.tokenizer.chat import encode_prompt
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


@pytest.mark.full
def test_the_default_model_still_speaks_and_knows_a_capital(default_model: Path) -> None:
    torch.set_num_threads(2)
    console = Console(verbosity=-1)
    use_compiled(console)
    loaded = load("smollm2-135m-aqlm")
    quantised = open_checkpoint(checkpoint_source(loaded, console))
    tokenizer = open_tokenizer(quantised.path)
    ids = evaluation_ids(tokenizer, evaluation_text(None))
    found = compared(quantised, None, ids, 6, lambda _event: None, original=open_checkpoint(default_model))
    # measured over 445 positions: 47.5 against 25.2, and 0.57
    assert found.perplexity < 2.2 * found.perplexity_float
    assert found.top1_agreement > 0.45
    prompt = encode_prompt(tokenizer, loaded.recipe.run.prompt, chat=True, system=None)
    said = tokenizer.encode("The capital of Japan is Tokyo")
    judged = ReferenceDecoder(quantised, HeldPasses(quantised)).judge(prompt, said, cache_length=128)
    # on another CPU rounding alone changes codes: where it was made, every token is the first choice
    assert sum(item.gap == 0 for item in judged) >= len(said) - 1
    assert max(item.gap for item in judged) < 2
