"""What of a recipe's `neuron` section the export's workers need, and the texts that activations are measured on, as ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etcli.common.errors import Problem, RecipeError
from etcli.export.job import NpuSettings
from etcli.export.simulated_sdk.mtk_neuron._options import wrong_options
from etcli.recipe.loaded import LoadedRecipe, Location
from etcli.recipe.neuron import RUNTIME_SPECS
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

_MOST_PROBLEMS = 20


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
    if neuron.simulated:
        _check_simulated_options(loaded, neuron.compile_specs)
    texts, key = DEFAULT_PROMPTS, "neuron.calibration"
    places: list[Location] = []
    if section.file is not None:
        key = "neuron.calibration.file"
        path = loaded.resolve_path(section.file)
        # As editors count lines; a mark of the byte order at the beginning is no part of a prompt.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
        texts = tuple(line for _, line in numbered)
        places = [Location(path, number, None) for number, _ in numbered]
    elif section.prompts:
        key, texts = "neuron.calibration.prompts", section.prompts
    chat = tokenizer.chat_template is not None
    prompts = tuple(tuple(encode_prompt(tokenizer, text, chat=chat, system=None)) for text in texts)
    cache = loaded.recipe.export.parsed_shapes[0].cache
    place = loaded.location(key)
    problems: list[Problem] = []
    for number, ids in enumerate(prompts):
        if 0 < len(ids) <= cache:
            continue
        if len(problems) == _MOST_PROBLEMS:
            problems.append(_problem(key, "more prompts are wrong", "Is this a file of prompts, one a line?", place))
            break
        what = f"prompt {number + 1} " + (
            f"is of {len(ids)} tokens, the cache holds {cache}" if ids else "has no tokens"
        )
        hint = "Shorten the prompt, or export shapes with a longer cache." if ids else "Remove it."
        problems.append(_problem(key, what, hint, places[number] if places else place))
    if problems:
        raise RecipeError.many(problems)
    settings = NpuSettings(
        platform=soc.id,
        compile_specs=dict(sorted(neuron.compile_specs.items())),
        shared=loaded.recipe.export.layout == "package",
        simulated=neuron.simulated,
    )
    return NpuPlan(settings, prompts, section.response_cap)


def _problem(key: str, what: str, hint: str, place: Location) -> Problem:
    return RecipeError.problem(
        f"{key}: {what}", code="recipe.calibration", hint=hint, file=place.file, line=place.line, column=place.column
    )


def _check_simulated_options(loaded: LoadedRecipe, specs: Mapping[str, str]) -> None:
    """Refuse here what the simulated compiler would refuse after the chunks have been quantised. What MediaTek's takes, only that one knows."""
    given = [f"--{key}={text}" if text else f"--{key}" for key, text in specs.items() if key not in RUNTIME_SPECS]
    wrong = wrong_options(given)
    if wrong:
        place = loaded.location("neuron.compile_specs")
        raise RecipeError(
            f"neuron.compile_specs: the simulated compiler refuses: {'; '.join(wrong)}",
            code="recipe.compile_specs",
            hint="It takes the options that ExecuTorch gives language models. Remove others, or compile with MediaTek's SDK.",
            file=place.file,
            line=place.line,
            column=place.column,
        )
