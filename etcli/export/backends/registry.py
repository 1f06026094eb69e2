"""Which backends there are. Adding one is a module and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from etcli.common.errors import RecipeError
from etcli.export.backends.base import Backend, ModuleBackend
from etcli.export.backends.neuron import Neuron
from etcli.export.backends.portable import Portable
from etcli.export.backends.xnnpack import Xnnpack
from etcli.recipe.loaded import LoadedRecipe

MODULE_BACKENDS: Mapping[str, ModuleBackend] = {backend.name: backend for backend in (Portable(), Xnnpack())}
BACKENDS: Mapping[str, Backend] = {**MODULE_BACKENDS, "neuron": Neuron()}


def backend_for(loaded: LoadedRecipe) -> Backend:
    """The backend that the recipe asks for, able to do its precision.

    Raises:
        RecipeError: there is no such backend, or it has no such precision.
    """
    wanted, precision = loaded.recipe.export.backend, loaded.recipe.export.precision
    backend = BACKENDS.get(wanted)
    if backend is None:
        place = loaded.location("export.backend")
        raise RecipeError(
            f"export.backend: {wanted} is not supported",
            code="recipe.unsupported",
            hint=f"Use one of: {', '.join(sorted(BACKENDS))}",
            file=place.file,
            line=place.line,
            column=place.column,
        )
    if precision not in backend.precisions:
        place = loaded.location("export.precision")
        raise RecipeError(
            f"export.precision: {precision} is not supported by backend {wanted}",
            code="recipe.unsupported",
            hint=f"With {wanted}, use one of: {', '.join(backend.precisions)}",
            file=place.file,
            line=place.line,
            column=place.column,
        )
    return backend
