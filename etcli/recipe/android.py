"""What a recipe says of Android: contradictions within it."""

from __future__ import annotations

from collections.abc import Iterator

from etcli.recipe.schema import Recipe
from etcli.tables.targets import load_targets

ANDROID = "android"

Finding = tuple[str, str, str]
"""The key that a finding stands at, what is wrong, what to do."""


def api_level_findings(recipe: Recipe) -> Iterator[Finding]:
    """An API level below what everything that etcli builds for Android needs."""
    lowest = load_targets()[ANDROID].api_level or 0
    asked = recipe.build.api_level
    if asked is not None and asked < lowest:
        yield (
            "build.api_level",
            f"API level {asked} is below {lowest}, the lowest that runners are built for",
            f"Remove the key, or write {lowest} or more.",
        )


def simulator_findings(recipe: Recipe, target: str | None = None) -> Iterator[Finding]:
    """The simulated NPU in a build for phones; `target` is the one that is built for, by default the recipe's."""
    neuron = recipe.neuron
    if (target or recipe.build.target) == ANDROID and neuron is not None and neuron.simulated:
        yield (
            "neuron.sdk",
            "the simulated NPU runs on virtual devices, there is none for target android",
            "Name the folder of MediaTek's SDK in neuron.sdk, or build for linux-aarch64 or host.",
        )
