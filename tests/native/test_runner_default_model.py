"""The default model, exported by the export stage and run by the native runner: the tokens of the eager reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.workspace import Workspace
from etcli.export.reference import run_reference
from etcli.export.result import ExportOptions
from etcli.export.stage import export
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer

ANSWER = (504, 3575, 282, 3085, 314, 19081, 30, 2)
"""The capital of Japan is Tokyo., and the end token."""


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_the_default_model_answers_as_the_reference_does(default_model: Path, llama_runner, tmp_path: Path) -> None:
    recipe = Recipe.model_validate({"name": "default-model", "model": {"source": str(default_model)}})
    loaded = LoadedRecipe(recipe=recipe, path=Path("recipe.yaml"), base=tmp_path, document={})
    console = Console(verbosity=-1)
    options = ExportOptions(jobs=None, only_chunks=None, force=False, dry_run=False)
    bundle = export(loaded, Workspace(tmp_path, "default-model"), options, console).folder
    tokenizer = open_tokenizer(open_checkpoint(default_model).path)

    def run(prompt: list[int], count: int):
        ids = ",".join(map(str, prompt))
        done = llama_runner("--config", bundle / "runner.cfg", "--prompt-ids", ids, "--max-new-tokens", str(count))
        assert done.status == 0, done.stderr
        expected = run_reference(
            loaded,
            prompt_ids=prompt,
            max_new_tokens=count,
            cache_length=recipe.export.parsed_shapes[0].cache,
            console=console,
        )
        assert tuple(done.tokens) == expected.tokens
        assert done.one("stats")["stop_reason"] == expected.stop_reason
        return done

    question = encode_prompt(tokenizer, "What is the capital of Japan?", chat=True, system=None)
    assert tuple(run(question, 64).tokens) == ANSWER

    story = encode_prompt(tokenizer, "Tell me a long story about a lighthouse and a whale.", chat=True, system=None)
    assert len(run(story, 120).tokens) > 60

    # Nearly as long as the cache, so that decoding fills it.
    text = (
        "The history of navigation is the history of seamanship, the art of directing vessels upon the open sea. " * 40
    )
    long = encode_prompt(tokenizer, text, chat=False, system=None)[:500]
    assert run(long, 64).one("stats")["stop_reason"] == "cache_full"
