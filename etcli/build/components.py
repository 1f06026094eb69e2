"""Which parts of ExecuTorch and which operators of our own a runner is linked with, from what the recipe exports to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.recipe.custom_ops import own_operators, shipped_operators
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tables.delegates import NEURON, read_delegate
from etcli.tables.operators import ATTENTION, OperatorLibrary, read_operators
from etcli.tables.simulated_npu import SimulatedNpu, read_simulated_npu


@dataclass(frozen=True)
class Component:
    """A shared library of the ExecuTorch package.

    `cmake_target` is its name behind `executorch::`; `backends` are the delegate ids that it must turn out to register, `operators` whether
    it must turn out to register operators.
    """

    cmake_target: str
    backends: tuple[str, ...] = ()
    operators: bool = False

    @property
    def library(self) -> str:
        """File name of the library."""
        return "libexecutorch.so" if self.cmake_target == "runtime" else f"libexecutorch_{self.cmake_target}.so"


_ALWAYS = (
    Component("runtime", operators=True),
    Component("threadpool"),
    Component("kernels_optimized", operators=True),
)

_FOR_BACKEND: dict[str, tuple[Component, ...]] = {
    "portable": (),
    "xnnpack": (Component("backend_xnnpack", backends=("XnnpackBackend",)),),
    # Its delegate is compiled with the runner.
    "neuron": (),
}

_DELEGATES_FOR_BACKEND: dict[str, tuple[str, ...]] = {"neuron": (NEURON,)}
"""Folders under `native/` of delegates that our runner is linked with; the mtk runner brings its own."""

_OPERATORS_FOR_RUNNER: dict[str, tuple[str, ...]] = {"etcli": (ATTENTION,), "mtk": ()}
"""Folders under `native/`, beside those that the recipe's precision needs. Our runner always has the operators of `cache: ring`: small, and
one build then runs bundles of either cache."""


def operator_libraries(loaded: LoadedRecipe, native: Path) -> tuple[OperatorLibrary, ...]:
    """What a runner for this recipe is linked with, whole: the runner's and the recipe's operators and the delegate under `native`, then the
    user's own operators.

    Raises:
        RecipeError: one of the user's own cannot be used, see `recipe/custom_ops.py`.
        BuildError: one under `native` is not as its description says.
    """
    recipe = loaded.recipe
    own = own_operators(loaded)
    shipped = dict.fromkeys((*_OPERATORS_FOR_RUNNER[recipe.run.runner], *shipped_operators(recipe)))
    delegates = _DELEGATES_FOR_BACKEND.get(recipe.export.backend, ()) if recipe.run.runner == "etcli" else ()
    return (
        *(read_operators(native / name) for name in shipped),
        *(read_delegate(native / name) for name in delegates),
        *own,
    )


def simulated_npu(recipe: Recipe, native: Path) -> SimulatedNpu | None:
    """The simulated NPU, which a runner finds beside itself where the recipe says `neuron.sdk: simulator`, and nowhere else.

    Raises:
        BuildError: it is not as its description says.
    """
    return read_simulated_npu(native) if recipe.neuron is not None and recipe.neuron.simulated else None


def components(
    recipe: Recipe, libraries: Sequence[OperatorLibrary] = (), simulated: SimulatedNpu | None = None
) -> tuple[Component, ...]:
    """What a runner for this recipe and these operators is linked with.

    It is linked with what the simulated NPU needs as well, so that a process has one copy of it, registered before anything is opened.

    The CPU kernels are always there: some operators stay outside every delegate.

    Raises:
        KeyError: no build is known for the recipe's backend; `recipe/support.py` refuses those before.
    """
    known = (*_ALWAYS, *_FOR_BACKEND[recipe.export.backend])
    names = [name for library in libraries for name in library.components]
    wanted = dict.fromkeys((*names, *(simulated.components if simulated is not None else ())))
    return (*known, *(Component(name) for name in wanted if name not in {part.cmake_target for part in known}))


def always_linked() -> tuple[Component, ...]:
    """The parts of ExecuTorch's package that every runner is linked with."""
    return _ALWAYS


def linked_for_backend() -> dict[str, tuple[Component, ...]]:
    """What a recipe's `export.backend` adds to those, by its name."""
    return dict(_FOR_BACKEND)


def delegates_for_backend() -> dict[str, tuple[str, ...]]:
    """Folders under `native/` of the delegates that our runner is linked with, by `export.backend`."""
    return dict(_DELEGATES_FOR_BACKEND)
