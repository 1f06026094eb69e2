"""Recipe and checkpoint checked from headers alone: no tensor read, no torch, no download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import peek
from etcli.common.errors import EtcliError, Problems
from etcli.manifests.model import ModelConfig
from etcli.output.console import Console
from etcli.recipe.fit import fit_problem
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.support import unsupported


@dataclass(frozen=True)
class Validated:
    """What was looked at. `checkpoint` and `model` are None where the source is not on this machine yet."""

    recipe: Path
    name: str
    checkpoint: Path | None
    format: str | None
    model: ModelConfig | None

    @property
    def summary(self) -> str:
        """One line for a person."""
        if self.model is None:
            return "the recipe is right; its checkpoint is not on this machine yet"
        model = self.model
        return (
            f"recipe and checkpoint are right: {model.architecture}, {model.num_layers} layers, hidden {model.hidden_size}, "
            f"{model.num_heads} heads ({model.num_kv_heads} KV), vocabulary {model.vocab_size}, {self.format}"
        )


def validate(loaded: LoadedRecipe, console: Console) -> Validated:
    """Check a recipe and, where it is on this machine, its checkpoint's headers.

    Raises:
        EtcliError: with every problem found.
    """
    problems = Problems()
    for problem in unsupported(loaded):
        problems.add(problem)
    path = None
    try:
        path = peek(loaded)
    except EtcliError as error:
        problems.absorb(error)
    else:
        if path is None:
            console.warn(
                f"{loaded.recipe.model.source} has not been fetched yet, so only the recipe was checked",
                code="checkpoint.not_fetched",
            )
    model, kind = None, None
    if path is not None:
        found = header_problems(path)
        for problem in found:
            problems.add(problem)
        if not found:
            checkpoint = open_checkpoint(path)
            model, kind = checkpoint.config, checkpoint.format
            problems.add(fit_problem(loaded, model))
    problems.raise_if_any()
    return Validated(loaded.path, loaded.recipe.name, path, kind, model)
