"""Precisions of head and embedding, group sizes: their defaults, what contradicts, and what does not fit a network."""

from __future__ import annotations

from typing import Any

import pytest

from etcli.common.errors import RecipeError
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.recipe.fit import fit_problems, twice_quantised_warning
from etcli.recipe.loader import load
from etcli.recipe.precisions import embedding_precision, group_size, head_precision
from etcli.recipe.schema import Recipe
from etcli.recipe.support import unsupported


def recipe(**export: Any) -> Recipe:
    return Recipe.model_validate({"name": "a", "model": {"source": "x"}, "export": export})


@pytest.mark.parametrize(
    ("export", "head", "embedding", "group"),
    [
        ({}, "fp32", "fp32", None),
        ({"precision": "fp16"}, "fp16", "fp32", None),
        ({"precision": "8da4w"}, "8da8w", "fp32", 32),
        ({"precision": "8da4w", "group_size": 64, "head": "fp32"}, "fp32", "fp32", 64),
        ({"head": "8da8w"}, "8da8w", "fp32", None),
        ({"head": "8da4w"}, "8da4w", "fp32", 32),
        ({"embedding": "int4", "group_size": 96}, "fp32", "int4", 96),
        ({"embedding": "fp16"}, "fp32", "fp16", None),
    ],
)
def test_defaults_follow_the_precision(export: dict[str, Any], head: str, embedding: str, group: int | None) -> None:
    found = recipe(**export)
    assert (head_precision(found), embedding_precision(found), group_size(found)) == (head, embedding, group)


@pytest.mark.parametrize(
    ("export", "code", "line", "words"),
    [
        (["group_size: 32"], "recipe.conflict", 4, "nothing is quantised in groups with precision fp32"),
        (["precision: fp16", "group_size: 32"], "recipe.conflict", 5, "nothing is quantised in groups"),
        (["precision: 8da4w", "group_size: 48"], "recipe.conflict", 5, "48 is not a multiple of 32"),
        (["backend: portable", "head: 8da8w"], "recipe.conflict", 5, "backend portable has no output layer of 8da8w"),
        (["backend: portable", "precision: 8da4w"], "recipe.conflict", 5, "backend portable has no precision 8da4w"),
        (["head: int8"], "recipe.wrong_value", 4, "8da8w"),
        (["embedding: 8da4w"], "recipe.wrong_value", 4, "int4"),
        (["precision: 8da4w", "group_size: 0"], "recipe.wrong_value", 5, "group_size"),
    ],
)
def test_contradictions_are_refused_at_their_line(
    write: Any, export: list[str], code: str, line: int, words: str
) -> None:
    text = "name: a\nmodel: {source: x}\nexport:\n" + "".join(f"  {item}\n" for item in export)
    with pytest.raises(RecipeError) as caught:
        load(str(write(text)))
    (problem,) = caught.value.problems
    assert (problem.code, problem.line) == (code, line)
    assert words in f"{problem.message} {problem.hint}"


@pytest.mark.parametrize(
    "export",
    [
        "precision: fp16",
        "precision: 8da4w, group_size: 64, head: 8da4w, embedding: int4",
        "head: 8da8w, embedding: int8",
        "backend: portable, precision: fp16, head: fp32, embedding: fp16",
    ],
)
def test_what_goes_together_is_accepted(write: Any, export: str) -> None:
    assert unsupported(load(str(write(f"name: a\nmodel: {{source: x}}\nexport: {{{export}}}\n")))) == []


NETWORK = ModelConfig(
    architecture="LlamaForCausalLM",
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    context_length=8192,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=1e5),
    tied_embeddings=True,
)


@pytest.mark.parametrize(
    ("export", "told"),
    [
        ("precision: 8da4w, group_size: 32", None),
        ("precision: 8da4w, group_size: 192", None),
        ("precision: 8da4w, group_size: 128", "576 (hidden size), 576 (attention heads together)"),
        ("embedding: int8, group_size: 512", "576 (hidden size)"),
        ("embedding: int8, group_size: 288", None),
        ("precision: 8da4w, group_size: 288", "1536 (feed-forward size)"),
    ],
)
def test_a_group_must_divide_what_it_groups(write: Any, export: str, told: str | None) -> None:
    loaded = load(str(write(f"name: a\nmodel: {{source: x}}\nexport: {{{export}}}\n")))
    problems = list(fit_problems(loaded, NETWORK))
    assert len(problems) == (told is not None)
    for problem in problems:
        assert (problem.code, problem.line) == ("recipe.group_size", 3)
        assert problem.message.endswith(told or "")
        assert problem.hint is not None
        assert "32, 64, 96, 192" in problem.hint


@pytest.mark.parametrize(
    ("precision", "dtypes", "named"),
    [
        ("8da4w", ["F32", "Q4_1", "Q6_K", "Q4_1"], "Q4_1"),
        ("8da4w", ["Q4_K", "IQ3_XXS"], "IQ3_XXS, Q4_K"),
        ("8da4w", ["BF16", "F32", "Q8_0", "Q5_K"], None),
        ("fp16", ["Q4_1"], None),
    ],
)
def test_weights_that_are_quantised_twice_are_a_warning(write, precision, dtypes, named):
    text = f"name: x\nmodel: {{source: s.gguf}}\nexport: {{precision: {precision}}}\n"
    told = twice_quantised_warning(load(str(write(text))), dtypes)
    if named is None:
        assert told is None
    else:
        assert told is not None
        assert f"({named})" in told
        assert "--evaluate" in told
        assert "full precision" in told
