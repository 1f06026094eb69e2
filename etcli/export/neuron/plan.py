"""What of a recipe's `neuron` section the export's workers need, and the texts that activations are measured on, as ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etcli.common.errors import RecipeError
from etcli.export.job import NpuSettings
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import CalibrationSection
from etcli.tables.socs import find_soc
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.chat import encode_prompt

DEFAULT_PROMPTS: tuple[str, ...] = (
    "What is the capital of France?",
    "Explain in two sentences how a bicycle stays upright.",
    "Write a short note to a colleague who is ill.",
    "What is 17 plus 25? Think step by step.",
    "Write a Python function that reverses a list.",
)
"""Measured on where the recipe says nothing."""


@dataclass(frozen=True)
class NpuPlan:
    """What chunks are compiled for, and the prompts (ids) that activations are measured on, with `response_cap` tokens of answer each."""

    settings: NpuSettings
    prompts: tuple[tuple[int, ...], ...]
    response_cap: int

    def calibration(self) -> dict[str, Any]:
        """What decides the records, for a hash."""
        return {"prompts": self.prompts, "response_cap": self.response_cap}


def npu_plan(loaded: LoadedRecipe, tokenizer: Tokenizer) -> NpuPlan | None:
    """None for recipes of other backends.

    Raises:
        RecipeError: `recipe.calibration`, a prompt that does not fit the cache or has no tokens.
        CheckpointError: the model's chat template fails.
    """
    neuron = loaded.recipe.neuron
    soc = find_soc(neuron.platform) if neuron is not None else None
    if neuron is None or soc is None or loaded.recipe.export.backend != "neuron":
        return None
    section = neuron.calibration or CalibrationSection()
    texts, key = DEFAULT_PROMPTS, "neuron.calibration"
    if section.file is not None:
        key = "neuron.calibration.file"
        lines = loaded.resolve_path(section.file).read_text(encoding="utf-8").splitlines()
        texts = tuple(line.strip() for line in lines if line.strip())
    elif section.prompts:
        key, texts = "neuron.calibration.prompts", section.prompts
    chat = tokenizer.chat_template is not None
    prompts = tuple(tuple(encode_prompt(tokenizer, text, chat=chat, system=None)) for text in texts)
    cache = loaded.recipe.export.parsed_shapes[0].cache
    place = loaded.location(key)
    problems = [
        RecipeError.problem(
            f"{key}: prompt {number + 1} is of {len(ids)} tokens, the cache holds {cache}"
            if ids
            else f"{key}: prompt {number + 1} has no tokens",
            code="recipe.calibration",
            hint="Shorten the prompt, or export shapes with a longer cache." if ids else "Remove it.",
            file=place.file,
            line=place.line,
            column=place.column,
        )
        for number, ids in enumerate(prompts)
        if not 0 < len(ids) <= cache
    ]
    if problems:
        raise RecipeError.many(problems)
    settings = NpuSettings(
        platform=soc.id,
        compile_specs=dict(sorted(neuron.compile_specs.items())),
        shared=loaded.recipe.export.layout == "package",
        simulated=neuron.simulated,
    )
    return NpuPlan(settings, prompts, section.response_cap)
