"""Recipe, checkpoint and tokenizer checked from headers alone: no tensor read, no torch, no download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import peek
from etcli.common.errors import EtcliError, Problems
from etcli.export.assembly import stop_sources, united_config
from etcli.export.source import warn_of_quality
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import quality_remarks
from etcli.output.console import Console
from etcli.output.units import counted
from etcli.recipe.custom_ops import own_operator_problems
from etcli.recipe.fit import (
    fit_problems,
    padded_vocabulary_remark,
    quantising_problems,
    vocabulary_warning,
)
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.neuron import neuron_problems, platform_remark
from etcli.recipe.remarks import say_fit
from etcli.recipe.sources import adapter_path
from etcli.recipe.support import unsupported
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer


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
        quantised = "" if model.aqlm is None else f", quantised by AQLM {model.aqlm.scheme}"
        return (
            f"recipe and checkpoint are right: {model.architecture}, {counted(model.num_layers, 'layer')}, hidden {model.hidden_size}, "
            f"{counted(model.num_heads, 'head')} ({model.num_kv_heads} KV), vocabulary {model.vocab_size}, {self.format}{quantised}"
        )


def validate(loaded: LoadedRecipe, console: Console) -> Validated:
    """Check a recipe and, where it is on this machine, its checkpoint's headers, its tokenizer and the recipe's prompt.

    Raises:
        EtcliError: with every problem found.
    """
    problems = Problems()
    for problem in (*unsupported(loaded), *own_operator_problems(loaded), *neuron_problems(loaded)):
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
    warn_of_quality(loaded, console)
    remark = platform_remark(loaded.recipe)
    if remark is not None:
        console.warn(remark, code="neuron.platform_not_validated")
    model, kind = None, None
    if path is not None:
        adapter = adapter_path(loaded)
        found = header_problems(path, adapter)
        for problem in found:
            problems.add(problem)
        if not found:
            checkpoint = open_checkpoint(path, adapter)
            model, kind = checkpoint.config, checkpoint.format
            for remark in (*checkpoint.remarks, *quality_remarks(checkpoint.quality)):
                console.warn(remark, code="checkpoint.remark")
            problems.found.extend([*quantising_problems(loaded, model), *fit_problems(loaded, model)])
            say_fit(loaded, model, (info.dtype for info in checkpoint.tensors.values()), console)
        _check_tokenizer(loaded, path, model, problems, console)
    problems.raise_if_any()
    return Validated(loaded.path, loaded.recipe.name, path, kind, model)


def _check_tokenizer(
    loaded: LoadedRecipe, path: Path, model: ModelConfig | None, problems: Problems, console: Console
) -> None:
    """What export and run would find wrong with the tokenizer; `model` is None for a checkpoint that is wrong itself."""
    if model is None and path.is_file():
        return  # the same file, whose header cannot be trusted
    try:
        tokenizer = open_tokenizer(path)
        for remark in tokenizer.remarks:
            console.warn(remark, code="tokenizer.remark")
        if model is not None:
            united = united_config(model, tokenizer)
            doubt = vocabulary_warning(model, tokenizer.vocab_size)
            if doubt is not None:
                console.warn(doubt, code="tokenizer.small")
            padding = padded_vocabulary_remark(model, tokenizer.vocab_size)
            if padding is not None:
                console.detail(padding)
            for stop, sources in stop_sources(united, tokenizer).items():
                console.detail(f"stop id {stop}: {', '.join(sources)}")
        _try_prompt(loaded, tokenizer, console)
    except EtcliError as error:
        # a file that checkpoint and tokenizer share has been named already
        known = {(problem.file, problem.message) for problem in problems.found}
        problems.found.extend(problem for problem in error.problems if (problem.file, problem.message) not in known)


def _try_prompt(loaded: LoadedRecipe, tokenizer: Tokenizer, console: Console) -> None:
    """Encode the recipe's prompt as `run` will. What another prompt or `--no-chat` would cure is a warning.

    Raises:
        CheckpointError: the chat template fails.
    """
    run, cache = loaded.recipe.run, loaded.recipe.export.parsed_shapes[0].cache
    if run.chat and tokenizer.chat_template is None:
        console.warn(
            "the checkpoint has no chat template, so `etcli run` cannot chat: use --no-chat, or run.chat: false",
            code="tokenizer.no_chat_template",
        )
        return
    count = len(encode_prompt(tokenizer, run.prompt, chat=run.chat, system=run.system))
    if not count:
        console.warn("run.prompt is empty, so `etcli run` needs --prompt", code="run.prompt_empty")
    elif count >= cache:
        console.warn(
            f"run.prompt has {counted(count, 'token')}, the cache holds {cache}, prompt and answer together: `etcli run` refuses it",
            code="run.prompt_too_long",
        )
