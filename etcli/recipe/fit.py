"""What a recipe asks of a network, held against the network's own numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from etcli.common.errors import Problem, RecipeError
from etcli.manifests.model import AQLM_GROUP, ModelConfig
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.precisions import GROUP_STEP, group_size, groups_embedding, groups_head, groups_linears

_PADDING_ROWS = 1024
"""Rows beyond the tokenizer's that published models have at most (Qwen2: 421)."""

_FOUR_BITS = ("8da4w", "A16W4", "A8W4")
"""Precisions whose weights have 4 bits."""

_COARSE = re.compile(r"I?Q[1-4]_|TQ[12]_|MXFP4")
"""GGUF's types of 4 bits and fewer."""


def fit_problems(loaded: LoadedRecipe, model: ModelConfig) -> Iterator[Problem]:
    """What the recipe asks of the network that it cannot give: chunks that do not share its layers, a cache longer than attention reaches,
    a precision that is not that of its weights."""
    chunks = loaded.recipe.export.chunks
    if model.num_layers % chunks:
        fitting = ", ".join(str(n) for n in range(1, model.num_layers + 1) if model.num_layers % n == 0)
        yield _problem(
            loaded,
            "export.chunks",
            f"{chunks} chunks cannot share {model.num_layers} layers equally",
            code="recipe.chunks",
            hint=f"Numbers of chunks that fit: {fitting}",
        )
    yield from _aqlm_problems(loaded, model)
    yield from _group_problems(loaded, model)
    cache = loaded.recipe.export.parsed_shapes[0].cache
    if model.sliding_window is not None and cache > model.sliding_window:
        yield _problem(
            loaded,
            "export.shapes",
            f"a cache of {cache} positions is longer than the sliding window of {model.sliding_window} that the network attends over",
            code="recipe.sliding_window",
            hint=f"Use caches of at most {model.sliding_window} positions: within them sliding attention is full attention.",
        )


def quantising_problems(loaded: LoadedRecipe, source: ModelConfig) -> Iterator[Problem]:
    """Why `model.quantize: aqlm` cannot be had of the network in `model.source`; nothing for recipes without it.

    `fit_problems` holds of the source and of the network that is made of it alike, this of the source alone.
    """
    if loaded.recipe.model.quantize is None:
        return
    if source.aqlm is not None:
        yield _problem(
            loaded,
            "model.quantize",
            "the checkpoint is quantised by AQLM already",
            code="recipe.aqlm_twice",
            hint="Remove the key: export.precision: aqlm takes the checkpoint as it is.",
        )
        return
    inputs = {
        "hidden size": source.hidden_size,
        "attention heads together": source.num_heads * source.head_dim,
        "feed-forward size": source.intermediate_size,
    }
    wrong = {name: number for name, number in inputs.items() if number % AQLM_GROUP}
    if wrong:
        told = ", ".join(f"{number} ({name})" for name, number in wrong.items())
        yield _problem(
            loaded,
            "model.quantize",
            f"AQLM quantises {AQLM_GROUP} inputs at a time, which do not divide {told}",
            code="recipe.aqlm_group",
            hint="Use precision fp32 or fp16 for this network.",
        )


def _aqlm_problems(loaded: LoadedRecipe, model: ModelConfig) -> Iterator[Problem]:
    """A precision that is not that of the weights: codes stay codes, and plain matrices have none."""
    precision = loaded.recipe.export.precision
    if model.aqlm is not None and precision != "aqlm":
        yield _problem(
            loaded,
            "export.precision",
            f"the checkpoint is quantised by AQLM, and precision {precision} is made of plain weights",
            code="recipe.aqlm_checkpoint",
            hint=f"Set export.precision: aqlm, or name the unquantised model as model.source for {precision}.",
        )
    elif precision == "aqlm" and model.aqlm is None and loaded.recipe.model.quantize is None:
        yield _problem(
            loaded,
            "export.precision",
            "precision aqlm needs weights quantised by AQLM, and those of the checkpoint are not",
            code="recipe.aqlm_plain",
            hint="Name an AQLM checkpoint as model.source (2x8 or 1x8), or set model.quantize: aqlm for one of demonstration quality, or use precision 8da4w.",
        )


def _group_problems(loaded: LoadedRecipe, model: ModelConfig) -> Iterator[Problem]:
    """A group size that does not divide what it is to divide."""
    recipe = loaded.recipe
    size = group_size(recipe)
    if size is None:
        return
    inputs: dict[str, int] = {}
    if groups_linears(recipe):
        inputs["hidden size"] = model.hidden_size
        inputs["attention heads together"] = model.num_heads * model.head_dim
        inputs["feed-forward size"] = model.intermediate_size
    if groups_head(recipe) or groups_embedding(recipe):
        inputs["hidden size"] = model.hidden_size
    wrong = {name: number for name, number in inputs.items() if number % size}
    if wrong:
        told = ", ".join(f"{number} ({name})" for name, number in wrong.items())
        common = math.gcd(*inputs.values())
        fitting = ", ".join(str(n) for n in range(GROUP_STEP, min(common, 256) + 1, GROUP_STEP) if common % n == 0)
        yield _problem(
            loaded,
            "export.group_size",
            f"groups of {size} weights do not divide {told}",
            code="recipe.group_size",
            hint=f"Group sizes that fit: {fitting}"
            if fitting
            else "No group size fits this network: use precision fp32 or fp16.",
        )


def long_cache_warning(loaded: LoadedRecipe, model: ModelConfig) -> str | None:
    """What to say of a cache longer than the network's context, which works and rarely gives sense."""
    cache = loaded.recipe.export.parsed_shapes[0].cache
    if cache <= model.context_length:
        return None
    return f"the cache of {cache} positions is longer than the context of {model.context_length} that the network was trained for"


def twice_quantised_warning(loaded: LoadedRecipe, dtypes: Iterable[str]) -> str | None:
    """What to say of weights that are of 4 bits or fewer already (GGUF's `dtypes`) where the precision makes 4-bit weights of them again.

    Each rounding has an error of its own, and the second cannot know what the first took away.
    """
    precision = loaded.recipe.export.precision
    coarse = sorted({dtype for dtype in dtypes if _COARSE.match(dtype)})
    if precision not in _FOUR_BITS or not coarse:
        return None
    return (
        f"the checkpoint's weights are quantised already ({', '.join(coarse)}), and precision {precision} quantises them a second time: "
        "take the model in full precision as model.source, or see with `etcli export --evaluate` what it costs"
    )


def padded_vocabulary_remark(model: ModelConfig, tokens: int) -> str | None:
    """What to say of an embedding with more rows than the tokenizer has `tokens`, which is common and right: no text has those ids."""
    if model.vocab_size <= tokens:
        return None
    return f"the embedding has {model.vocab_size} rows, {model.vocab_size - tokens} more than the tokenizer has tokens (padding)"


def vocabulary_warning(model: ModelConfig, tokens: int) -> str | None:
    """What to say of a tokenizer that lacks more tokens than padding explains: it may be another model's, which no later step would notice."""
    lacking = model.vocab_size - tokens
    if lacking <= _PADDING_ROWS or lacking * 10 <= model.vocab_size:
        return None
    return f"the tokenizer has {tokens} tokens, the embedding {model.vocab_size} rows: padding is rarely as much, so it may be another model's"


def _problem(loaded: LoadedRecipe, key: str, message: str, *, code: str, hint: str) -> Problem:
    place = loaded.location(key)
    return RecipeError.problem(
        f"{key}: {message}", code=code, hint=hint, file=place.file, line=place.line, column=place.column
    )
