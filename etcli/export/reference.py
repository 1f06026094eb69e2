"""The eager reference, quantised as the recipe asks, run as a subprocess, so that the caller neither imports torch nor holds a model.

The right tokens of a prompt (`run_reference`), or the reference's opinion of tokens that something else produced (`judge_tokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from etcli.export.isolated import run_isolated
from etcli.export.settings import embedding_settings, precision_settings
from etcli.export.source import checkpoint_source, remaining_adapter
from etcli.llama.answers import Judgement, ReferenceResult
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe

__all__ = ["Judgement", "ReferenceResult", "judge_tokens", "run_reference"]


def run_reference(
    loaded: LoadedRecipe, *, prompt_ids: Sequence[int], max_new_tokens: int, cache_length: int, console: Console
) -> ReferenceResult:
    """Decode `prompt_ids` greedily in eager PyTorch from the recipe's checkpoint, in its precisions.

    Stops as the runner does: after a stop id, after `max_new_tokens`, or when all `cache_length` positions are used.

    Raises:
        CheckpointError: the checkpoint cannot be fetched, opened or read.
        RecipeError, InterruptedByUser: as `checkpoint_source`.
        UsageError: the prompt is empty, does not fit the cache, or has ids outside the vocabulary.
        ExportError: the process failed or was killed.
    """
    job = {
        "checkpoint": str(checkpoint_source(loaded, console)),
        "adapter": _text(remaining_adapter(loaded)),
        "prompt_ids": list(prompt_ids),
        "max_new_tokens": max_new_tokens,
        "cache_length": cache_length,
        "tokens": None,
        **_precisions(loaded),
    }
    with console.progress("reference tokens", max_new_tokens) as advance:
        result = _run(job, console, lambda: advance(1))
    return ReferenceResult(tuple(result["tokens"]), result["stop_reason"])


def judge_tokens(
    loaded: LoadedRecipe,
    *,
    prompt_ids: Sequence[int],
    tokens: Sequence[int],
    cache_length: int,
    console: Console,
    graphs: Sequence[Path] = (),
) -> tuple[Judgement, ...]:
    """Feed `tokens` after the prompt and compare each with the reference's own choice at its place.

    Args:
        graphs: the chunks' quantised graphs, where the backend quantises graphs: they are run in place of the checkpoint's layers.

    Raises:
        CheckpointError, UsageError, ExportError: as `run_reference`.
    """
    job = {
        "checkpoint": str(checkpoint_source(loaded, console)),
        "adapter": _text(remaining_adapter(loaded)),
        "prompt_ids": list(prompt_ids),
        "cache_length": cache_length,
        "tokens": list(tokens),
        "graphs": [str(path) for path in graphs],
        **_precisions(loaded),
    }
    result = _run(job, console, lambda: None)
    return tuple(Judgement(**item) for item in result["judgements"])


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _precisions(loaded: LoadedRecipe) -> dict[str, Any]:
    return {
        "precision": precision_settings(loaded.recipe).model_dump(mode="json"),
        "embedding": embedding_settings(loaded.recipe).model_dump(mode="json"),
    }


def _run(job: Mapping[str, Any], console: Console, on_token: Callable[[], None]) -> dict[str, Any]:
    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "token":
            on_token()
        elif event["event"] == "note":
            console.note(f"    {event['text']}")
        elif event["event"] == "weights":
            size = f"{event['bytes'] / 1e9:.1f} GB of weights"
            if event["held"]:
                console.detail(f"    the reference holds {size} in memory")
            else:
                console.note(
                    f"    {size} are more than half of the free memory: each layer is read anew for every token"
                )

    return run_isolated(
        "etcli.export.reference_worker",
        job,
        title="the reference",
        on_event=on_event,
        on_line=console.detail,
        memory_hint="Close other programs, shorten the prompt, or compare on a machine with more memory.",
    )
