"""`etcli recipe new`: a starter recipe whose export is chosen by the size of the checkpoint, where that is on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.checkpoint.layout import expected_shapes
from etcli.checkpoint.opening import examine
from etcli.checkpoint.source import peek
from etcli.common.errors import EtcliError
from etcli.export.plan import ExportPlan, make_plan
from etcli.manifests.model import ModelConfig
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.loader import load_text
from etcli.recipe.starter import New, StarterExport, starter_name, starter_text, write_new

LARGE = 450_000_000
"""Parameters from which float32 is no choice for a phone: models "of half a billion" have a little less."""

MOST_BYTES = 500_000_000
"""The weights of one chunk at most, so that exporting and loading one take little memory beside it."""

_HEAD_SHARE = 1.5
"""A last chunk may be so many times its output layer, where that alone is large: more chunks would not make it much smaller."""

_CACHE, _PROMPT = 1024, 128


@dataclass(frozen=True)
class Started:
    """What was written, the `export` that was chosen (None: the usual one), and whether the checkpoint could not be looked at."""

    new: New
    export: StarterExport | None = None
    unread: bool = False


def start(path: Path, *, name: str | None = None, source: str | None = None, ci: Sequence[str] = ()) -> Started:
    """As `recipe.starter.write_new`, with an export that suits the checkpoint at `source`.

    Raises:
        UsageError, RecipeError: as `write_new`.
    """
    if source is None:
        return Started(write_new(path, name=name, ci=ci))
    recipe = _Unwritten(path, starter_name(path, name), source)
    config = recipe.config()
    export = None if config is None else _chosen(recipe, config)
    return Started(write_new(path, name=name, source=source, ci=ci, export=export), export, unread=config is None)


@dataclass(frozen=True)
class _Unwritten:
    """The starter that is to be written to `path`."""

    path: Path
    name: str
    source: str

    def loaded(self, export: StarterExport | None = None) -> LoadedRecipe:
        return load_text(starter_text(self.name, self.source, export), self.path)

    def config(self) -> ModelConfig | None:
        """The numbers of its network from the headers; None where it is not here, or wrong, which `validate` is to say."""
        try:
            found = peek(self.loaded())
        except EtcliError:
            return None
        checkpoint = examine(found)[0] if found is not None else None
        return None if checkpoint is None else checkpoint.config


def _chosen(recipe: _Unwritten, config: ModelConfig) -> StarterExport | None:
    parameters = _parameters(config)
    if parameters < LARGE or config.aqlm is not None:
        return None  # of AQLM's codes `validate` says what they need
    cache = min(_CACHE, config.context_length, config.sliding_window or _CACHE)
    shapes = f"[{min(_PROMPT, cache)}t{cache}c, 1t{cache}c]"
    size = f"{parameters / 1e9:.1f} billion parameters"
    quantised = StarterExport("8da4w", "int8", shapes=shapes, why=f"{size}: 4-bit weights fit a phone; or fp16, fp32")
    floats = StarterExport("fp16", shapes=shapes, why=f"{size}, whose sizes no groups of 4-bit weights divide")
    try:
        try:
            return _divided(recipe, config, quantised)
        except EtcliError as error:
            if all(problem.code != "recipe.group_size" for problem in error.problems):
                raise
            return _divided(recipe, config, floats)
    except EtcliError:
        return None  # what is wrong with it `validate` is to say


def _divided(recipe: _Unwritten, config: ModelConfig, export: StarterExport) -> StarterExport:
    """`export` with the fewest chunks that are small enough.

    Raises:
        RecipeError: the network cannot be exported so.
    """
    layers = config.num_layers
    smallest = _plan(recipe, config, export, layers)
    head = smallest.chunks[-1].stored_bytes - smallest.chunks[0].stored_bytes
    most = max(MOST_BYTES, _HEAD_SHARE * head)
    for chunks in _divisors(layers):
        if max(chunk.stored_bytes for chunk in _plan(recipe, config, export, chunks).chunks) <= most:
            return export.divided(chunks)
    return export.divided(layers)


def _divisors(number: int) -> Iterator[int]:
    return (divisor for divisor in range(1, number + 1) if number % divisor == 0)


def _plan(recipe: _Unwritten, config: ModelConfig, export: StarterExport, chunks: int) -> ExportPlan:
    return make_plan(recipe.loaded(export.divided(chunks)), config)


def _parameters(config: ModelConfig) -> int:
    return sum(math.prod(shape) for shape in expected_shapes(config).values())
