"""What a recipe and a command line ask of a build, before anything of this machine is looked at but the user's own sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.build import upstream
from etcli.build.android import AndroidSettings, android_settings
from etcli.build.apps import AppParts, app_parts
from etcli.build.components import Component, components, operator_libraries, simulated_npu
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.operators import OperatorLibrary
from etcli.tables.simulated_npu import SimulatedNpu
from etcli.tables.targets import Target
from etcli.toolchain import cmake


@dataclass(frozen=True)
class Asked:
    """A build of `loaded` for `target` in `folder`, from the sources in `native` and the user's own.

    `libraries` are the operators and delegates that the runner is linked with, `parts` those of ExecuTorch; `simulated` is the simulated NPU,
    `apps` the libraries for apps, `android` the settings of a target that is Android: None where there is none.
    """

    loaded: LoadedRecipe
    target: Target
    folder: Path
    native: Path
    libraries: tuple[OperatorLibrary, ...]
    apps: AppParts | None
    android: AndroidSettings | None
    simulated: SimulatedNpu | None
    parts: tuple[Component, ...]

    @property
    def openmp(self) -> bool:
        """Whether libraries that can use OpenMP shall: a process takes one runtime, and an app may have one, so its library uses ExecuTorch's threads."""
        return self.loaded.recipe.build.openmp != "off" and self.apps is None

    @property
    def own(self) -> tuple[OperatorLibrary, ...]:
        """The operator libraries of the user's own."""
        return tuple(library for library in self.libraries if library.own)


def asked_of(
    loaded: LoadedRecipe, target: Target, folder: Path, native: Path, console: Console, *, library: bool
) -> Asked:
    """All of it for a build in `folder`; with the libraries for apps where `library`.

    Raises:
        UsageError: CMake cannot build in a folder of that name.
        RecipeError: one of the user's operator libraries is wrong, or the recipe's values do not go together for the target.
        BuildError: the sources in `native` are not as described.
    """
    cmake.check_path(folder, "Name another place with --workspace, or move it.")
    libraries = operator_libraries(loaded, native)
    for one in libraries:
        cmake.check_path(one.root, "Move it.")
    apps = app_parts(loaded, target, console) if library else None
    shared = (
        *(apps.files if apps is not None else ()),
        *([upstream.LIBRARY] if upstream.wants_upstream(loaded.recipe, target) else []),
    )
    android = android_settings(loaded, target, libraries, shared)
    simulated = simulated_npu(loaded.recipe, native)
    parts = components(loaded.recipe, libraries, simulated)
    return Asked(loaded, target, folder, native, libraries, apps, android, simulated, parts)
