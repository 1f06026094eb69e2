"""`export --evaluate`: what quantising cost, measured on a text by a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etcli.checkpoint.source import fetch
from etcli.common.errors import UsageError
from etcli.export.isolated import run_isolated
from etcli.export.result import ExportResult
from etcli.export.settings import embedding_settings, precision_settings
from etcli.export.source import checkpoint_source, remaining_adapter
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ExportReport, Quality
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import REPORT
from etcli.recipe.sources import adapter_path
from etcli.tokenizer.base import Tokenizer

MAX_TOKENS = 2048
"""Enough for a steady figure; the logits of all positions are held."""

MIN_TOKENS = 32

_LARGEST_TEXT = 1 << 20
_BUILT_IN = Path(__file__).with_name("evaluation.txt")


def evaluation_text(file: Path | None) -> str:
    """The text of `file`, or the short one that ships with etcli.

    Raises:
        UsageError: `export.evaluation_text`, the file cannot be read, is empty, or is not UTF-8.
    """
    path = file or _BUILT_IN
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_TEXT)
        # a cut character at the end of a long file is no fault of the file's
        text = data.decode("utf-8", errors="ignore" if len(data) == _LARGEST_TEXT else "strict").strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"the text for the evaluation cannot be read: {said}",
            code="export.evaluation_text",
            hint="Give a readable text file to --evaluate-text, or leave it out for the built-in text.",
            file=path,
        ) from None
    return text


def evaluation_ids(tokenizer: Tokenizer, text: str, file: Path | None = None) -> list[int]:
    """The text's ids, at most `MAX_TOKENS`.

    Raises:
        UsageError: `export.evaluation_text`, they are too few.
    """
    ids = tokenizer.encode(text, bos=True)[:MAX_TOKENS]
    if len(ids) < MIN_TOKENS:
        raise UsageError(
            f"the text for the evaluation is of {len(ids)} tokens; at least {MIN_TOKENS} are needed",
            code="export.evaluation_text",
            hint="Give a text of some hundred words.",
            file=file,
        )
    return ids


def evaluated(loaded: LoadedRecipe, result: ExportResult, ids: list[int], console: Console) -> ExportResult:
    """`result` with its evaluation, which is written into the bundle's report as well. Without a whole bundle there is none.

    The weights as they were exported are those of eager PyTorch, which every chunk was compared with after its export; for the NPU they are the
    bundle's quantised graphs.

    Raises:
        CheckpointError, ExportError: as the reference.
    """
    if result.manifest is None:
        console.note("    the bundle is not whole yet: nothing is evaluated")
        return result
    bundle = result.manifest
    graphs = [result.folder / entry.path for entry in bundle.reference]
    # quantised graphs take a text in one call, which their caches bound; the last id is only predicted
    ids = ids[: min(bundle.model.context_length, bundle.shapes[0].cache + 1) if graphs else bundle.model.context_length]
    with console.step(f"Evaluating on {len(ids)} tokens"):
        found = _evaluate(loaded, ids, bundle, graphs, console)
    path = result.folder / REPORT
    ExportReport.read(path).model_copy(update={"evaluation": found}).write(path)
    return dataclasses.replace(result, evaluation=found)


def _evaluate(
    loaded: LoadedRecipe, ids: list[int], bundle: BundleManifest, graphs: Sequence[Path], console: Console
) -> Quality:
    layers = bundle.model.num_layers
    job = {
        "checkpoint": _place(checkpoint_source(loaded, console), remaining_adapter(loaded)),
        # what model.quantize costs is part of what quantising costs
        "original": _place(fetch(loaded, console), adapter_path(loaded)) if loaded.recipe.model.quantize else None,
        "ids": ids,
        "graphs": [str(path) for path in graphs],
        "cache_length": bundle.shapes[0].cache,
        "layers": layers // loaded.recipe.export.chunks,
        "precision": precision_settings(loaded.recipe).model_dump(mode="json"),
        "embedding": embedding_settings(loaded.recipe).model_dump(mode="json"),
    }

    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            console.note(f"    {event['text']}")
        else:
            advance(1)

    with console.progress("layers", layers) as advance:
        result = run_isolated(
            "etcli.export.evaluation_worker",
            job,
            title="the evaluation",
            on_event=on_event,
            on_line=console.detail,
            memory_hint="Close other programs, give a shorter text with --evaluate-text, or use a machine with more memory.",
        )
    return Quality.model_validate(result["quality"])


def _place(path: Path, adapter: Path | None) -> dict[str, str | None]:
    return {"path": str(path), "adapter": None if adapter is None else str(adapter)}
