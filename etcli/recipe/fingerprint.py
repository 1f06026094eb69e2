"""What a stage read of the recipe, as a hash: an output made from other values is outdated."""

from __future__ import annotations

from typing import Any

from etcli.common.hashing import value_sha256
from etcli.manifests.bundle import CacheKind
from etcli.recipe.schema import Recipe

RING_BACKENDS = ("portable", "xnnpack")
"""The backends that leave the ring's operator to the CPU."""


def cache_kind(recipe: Recipe) -> CacheKind:
    """The KV cache contract that `export.cache` comes to. `auto` is `ring` for a CPU backend and our runner, else `shift`."""
    if recipe.export.cache != "auto":
        return recipe.export.cache
    return "ring" if recipe.export.backend in RING_BACKENDS and recipe.run.runner == "etcli" else "shift"


def export_fingerprint(recipe: Recipe) -> str:
    """SHA-256 over the resolved values that export reads: `name`, `model`, `export` (with the derived cache) and `neuron`.

    `export.python` is left out: it says where the worker runs, not what it writes.
    """
    values = recipe.model_dump(mode="json", include={"name", "model", "export", "neuron"})
    values["export"]["cache"] = cache_kind(recipe)
    del values["export"]["python"]
    return value_sha256(values)


def build_fingerprint(recipe: Recipe, target: str) -> str:
    """SHA-256 over what a build of `target` reads: name, `build` but its `target` key, the runner kind, export's backend and precision, and whether the
    NPU is the simulated one.

    `build.custom_ops` is left out too: what its entries come to counts, wherever they stand (`build_outdated`).
    """
    values: dict[str, Any] = recipe.model_dump(mode="json", include={"name", "build"})
    del values["build"]["target"]
    del values["build"]["custom_ops"]
    values["target"] = target
    values["runner"] = recipe.run.runner
    values["backend"] = recipe.export.backend
    values["precision"] = recipe.export.precision
    if recipe.neuron is not None:
        values["simulated"] = recipe.neuron.simulated
    return value_sha256(values)
