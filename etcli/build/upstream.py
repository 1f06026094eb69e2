"""Upstream's runner and delegate for MediaTek's NPU (`run.runner: mtk`), built beside ours from the checkout that ExecuTorch comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.build.components import Component
from etcli.recipe.schema import Recipe
from etcli.tables.targets import Target

PROGRAM = "mtk_llama_executor_runner"
LIBRARY = "libneuron_backend.so"
"""The delegate with every portable operator inside, which the program is linked with: two C++ binaries in one process."""

DELEGATE = Component("backend_neuron", backends=("NeuropilotBackend",))
VARIABLE = "ETCLI_EXECUTORCH_SOURCE"
"""The project's cache variable that names the checkout."""


@dataclass(frozen=True)
class Upstream:
    """The runner to be compiled; `checkout` is the folder of ExecuTorch's sources."""

    checkout: Path


def wants_upstream(recipe: Recipe, target: Target) -> bool:
    """Whether a build for `target` is to have upstream's runner: it exists for Android alone."""
    return recipe.run.runner == "mtk" and target.system == "android"
