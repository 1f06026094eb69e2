"""The plan of an export from what is on the disk: the checkpoint that chunks are made from, or the source before it is quantised."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.opening import open_checkpoint
from etcli.export.assembly import united_config
from etcli.export.neuron.plan import npu_plan
from etcli.export.plan import ExportPlan, make_plan
from etcli.export.source import exported_config, remaining_adapter
from etcli.manifests.model import ModelConfig
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.sources import adapter_path
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.opening import open_tokenizer


def planned(loaded: LoadedRecipe, path: Path) -> tuple[Checkpoint, Tokenizer, ModelConfig, ExportPlan]:
    """The plan of what is exported from `path`, which is what `checkpoint_source` gives."""
    checkpoint = open_checkpoint(path, remaining_adapter(loaded))
    tokenizer = open_tokenizer(path)
    model = united_config(checkpoint.config, tokenizer)
    return checkpoint, tokenizer, model, _plan(loaded, model, tokenizer)


def _plan(loaded: LoadedRecipe, model: ModelConfig, tokenizer: Tokenizer) -> ExportPlan:
    plan = make_plan(loaded, model)
    return dataclasses.replace(plan, npu=npu_plan(loaded, tokenizer))


def planned_from_source(loaded: LoadedRecipe, source: Path) -> tuple[ModelConfig, ExportPlan]:
    """The same of the recipe's source, before it is quantised: what can be known and refused before anything is written."""
    checkpoint, tokenizer = open_checkpoint(source, adapter_path(loaded)), open_tokenizer(source)
    model = exported_config(loaded, united_config(checkpoint.config, tokenizer))
    return model, _plan(loaded, model, tokenizer)
