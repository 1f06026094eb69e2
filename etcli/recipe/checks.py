"""What one key of a recipe says about another. Each check names the keys it reads and is left out where one of them is wrong already."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from etcli.common.errors import Problem
from etcli.recipe.android import api_level_findings, simulator_findings
from etcli.recipe.fingerprint import RING_BACKENDS
from etcli.recipe.neuron import (
    calibration_findings,
    compile_spec_findings,
    embedding_findings,
    platform_findings,
    worker_findings,
)
from etcli.recipe.paths import is_operator_folder
from etcli.recipe.precisions import embedding_precision, precision_findings
from etcli.recipe.schema import Recipe
from etcli.recipe.written import Written, shorten
from etcli.tables.operators import OFFERED
from etcli.tables.targets import load_targets

PRECISIONS: dict[str, tuple[str, ...]] = {
    "portable": ("fp32", "fp16", "aqlm"),
    "xnnpack": ("fp32", "fp16", "8da4w", "aqlm"),
    "neuron": ("A16W4", "A16W8", "A16W16", "A8W4", "A8W8"),
}
"""The precisions that each backend has kernels for."""

Finding = tuple[str, str, str]
"""The key that a finding stands at, what is wrong, what to do."""


@dataclass(frozen=True)
class Check:
    """`find` yields what is wrong between the keys `reads`."""

    reads: tuple[str, ...]
    find: Callable[[Recipe], Iterator[Finding]]


def _precision(recipe: Recipe) -> Iterator[Finding]:
    backend, precision = recipe.export.backend, recipe.export.precision
    allowed = PRECISIONS[backend]
    if precision not in allowed:
        fitting = [name for name, values in PRECISIONS.items() if precision in values]
        yield (
            "export.precision",
            f"backend {backend} has no precision {precision}",
            f"Use one of {', '.join(allowed)}, or backend {' or '.join(fitting)}.",
        )


def _neuron(recipe: Recipe) -> Iterator[Finding]:
    if recipe.export.backend == "neuron" and recipe.neuron is None:
        yield (
            "export.backend",
            "backend neuron needs a neuron section",
            "Add neuron: with platform and sdk.",
        )
    if recipe.export.backend != "neuron" and recipe.neuron is not None:
        yield (
            "neuron",
            f"the neuron section is for backend neuron, and the backend is {recipe.export.backend}",
            "Remove the section (neuron: null removes an inherited one), or set export.backend: neuron.",
        )


def _executorch(recipe: Recipe) -> Iterator[Finding]:
    provider, root = recipe.build.executorch.from_, recipe.build.executorch.root
    if provider == "prefix" and root is None:
        yield "build.executorch", "from: prefix needs root", "Add root: PATH of the installed ExecuTorch."
    if provider in ("auto", "wheel") and root is not None:
        yield (
            "build.executorch.root",
            f"root means nothing with from: {provider}",
            "Write from: source or from: prefix.",
        )


def _ring(recipe: Recipe) -> Iterator[Finding]:
    if recipe.export.cache == "ring" and recipe.export.backend not in RING_BACKENDS:
        yield (
            "export.cache",
            f"backend {recipe.export.backend} shifts its caches; a ring is for {' and '.join(RING_BACKENDS)}",
            "Use cache: shift.",
        )


def _mtk_runner(recipe: Recipe) -> Iterator[Finding]:
    if recipe.run.runner != "mtk":
        return
    if recipe.export.cache == "ring":
        yield "export.cache", "the mtk runner shifts its caches; a ring is for the etcli runner", "Use cache: shift."
    if len(recipe.export.shapes) > 2:
        yield "export.shapes", "the mtk runner takes one prompt shape", "Keep one prompt shape and the 1t shape."
    if (embedding := embedding_precision(recipe)) != "fp32":
        yield (
            "export.embedding",
            f"the mtk runner copies rows of the embedding into the first chunk as they are, which takes float32 and not {embedding}",
            "Use embedding: fp32 (or leave it out).",
        )
    if recipe.run.temperature > 0:
        yield (
            "run.temperature",
            "the mtk runner takes the likeliest token each time",
            "Use temperature: 0, or runner: etcli.",
        )


def _target(recipe: Recipe) -> Iterator[Finding]:
    names = ["auto", *load_targets()]
    if recipe.build.target not in names:
        close = difflib.get_close_matches(recipe.build.target[:100], names, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Use one of {', '.join(names)}."
        yield "build.target", f"there is no target {recipe.build.target[:80]!r}", hint


def _custom_ops(recipe: Recipe) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, text in enumerate(recipe.build.custom_ops):
        key = f"build.custom_ops.{index}"
        folder = is_operator_folder(text)
        same = f"{text.rstrip('/')}/" if folder else text
        if same in first:
            yield key, f"{shorten(text)!r} stands in the list twice", "Remove one of them."
        elif not folder and text not in OFFERED:
            close = difflib.get_close_matches(text[:100], OFFERED, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Operator libraries of etcli's: {', '.join(OFFERED)}."
            hint += f" A folder of your own is written with a '/': ./{text[:80]}" if text else ""
            yield key, f"there is no operator library {shorten(text)!r}", hint
        first.setdefault(same, index)


CHECKS = (
    Check(("export.backend", "export.precision"), _precision),
    Check(
        (
            "model.quantize",
            "export.backend",
            "export.precision",
            "export.group_size",
            "export.head",
            "export.embedding",
        ),
        precision_findings,
    ),
    Check(("export.backend", "neuron"), _neuron),
    Check(("build.executorch",), _executorch),
    Check(("build.target",), _target),
    Check(("build.custom_ops",), _custom_ops),
    Check(("build.api_level",), api_level_findings),
    Check(("build.target", "neuron"), simulator_findings),
    Check(("neuron",), platform_findings),
    Check(("neuron",), compile_spec_findings),
    Check(("neuron",), calibration_findings),
    Check(("export.backend", "export.embedding"), embedding_findings),
    Check(("export.backend", "export.python"), worker_findings),
    Check(("export.backend", "export.cache"), _ring),
    Check(("run.runner", "run.temperature", "export.cache", "export.shapes", "export.embedding"), _mtk_runner),
)


def cross_checks(recipe: Recipe, root: Written, bad: set[str]) -> list[Problem]:
    """Every contradiction between keys of a recipe, but for checks that read one of the `bad` keys or what is above or below it."""
    found = []
    for check in CHECKS:
        if any(_touches(key, wrong) for key in check.reads for wrong in bad):
            continue
        for key, message, hint in check.find(recipe):
            where, _ = root.find(tuple(int(word) if word.isdigit() else word for word in key.split(".")))
            found.append(where.problem("recipe.conflict", message, hint))
    return found


def _touches(key: str, wrong: str) -> bool:
    return key == wrong or key.startswith(f"{wrong}.") or wrong.startswith(f"{key}.")
