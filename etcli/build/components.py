"""Which parts of ExecuTorch a runner is linked with, from what the recipe exports to."""

from __future__ import annotations

from dataclasses import dataclass

from etcli.recipe.schema import Recipe


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
}


def components(recipe: Recipe) -> tuple[Component, ...]:
    """What a runner for this recipe is linked with. The CPU kernels are always there: some operators stay outside every delegate.

    Raises:
        KeyError: no build is known for the recipe's backend; `recipe/support.py` refuses those before.
    """
    return (*_ALWAYS, *_FOR_BACKEND[recipe.export.backend])
