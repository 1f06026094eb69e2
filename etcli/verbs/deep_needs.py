"""What only loading tells: PyTorch, ExecuTorch and the operator libraries, each in a process of its own, with the loader's own words where it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from etcli.common.errors import EtcliError, ToolError
from etcli.common.needs import Need, tried
from etcli.ops.library import aqlm_library, attention_library, built_library
from etcli.ops.trial import tried_apart
from etcli.output.console import Console
from etcli.recipe.custom_ops import own_operators, shipped_operators
from etcli.recipe.fingerprint import cache_kind
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.precisions import head_precision
from etcli.tables.operators import AQLM
from etcli.toolchain import executorch

# Each prints one JSON text, the version. What libraries print themselves goes before it.
_IMPORT = """\
import importlib, json, sys
name = sys.argv[1]
module = importlib.import_module(name)
print(json.dumps(str(getattr(module, "__version__", "it imports"))))
"""
_RUNTIME = """\
import json
import torch
from executorch.extension.pybindings._C import _get_operator_names
print(json.dumps(f"{len(_get_operator_names())} operators"))
"""
_OURS = """\
import json, sys
from pathlib import Path
from etcli.ops.loading import load_into_executorch
load_into_executorch(Path(sys.argv[1]))
print(json.dumps("it loads"))
"""
_THEIRS = """\
import json, sys
import torch
torch.ops.load_library(sys.argv[1])
print(json.dumps("it loads"))
"""


def deep_needs(loaded: LoadedRecipe, console: Console) -> list[Need]:
    """Load what an export and its check would load, one after the other (PyTorch takes half a gigabyte of memory), and say what came of it.

    Operator libraries that were not compiled yet are compiled now.
    """
    looks = [
        *_imports(loaded),
        ("ExecuTorch's Python runtime", "runs each program after export", _runtime),
        *_libraries(loaded, console),
    ]
    found = []
    with console.step("load each library in a process of its own"), console.progress("loaded", len(looks)) as advance:
        for name, why, look in looks:
            found.append(tried(name, why, look))
            advance(1)
        found += _shipped_with_executorch()
    return found


def _imports(loaded: LoadedRecipe) -> Iterable[tuple[str, str, Callable[[], tuple[str, str]]]]:
    modules = [("torch", "reads and traces the model"), ("executorch.exir", "lowers the graph")]
    export = loaded.recipe.export
    if export.backend == "xnnpack":
        modules.append(("executorch.backends.xnnpack.partition.xnnpack_partitioner", "hands the graph to XNNPACK"))
    plain = {"fp32", "fp16", None}
    if not {export.precision, head_precision(loaded.recipe), export.embedding} <= plain:
        modules.append(("torchao", "quantises the weights"))
    for module, why in modules:
        yield f"import {module}", why, lambda module=module: _load(module, _IMPORT, module, "")  # type: ignore[misc]


def _runtime() -> tuple[str, str]:
    return _load("ExecuTorch's Python runtime", _RUNTIME, "", str(executorch.host_package().root))


def _libraries(loaded: LoadedRecipe, console: Console) -> Iterable[tuple[str, str, Callable[[], tuple[str, str]]]]:
    """Ours, as far as the recipe needs them, and the user's own."""
    why = "runs programs with these operators in Python"
    if cache_kind(loaded.recipe) == "ring":
        yield "operators etcli_attention", why, lambda: _own(attention_library(console))
    if AQLM in shipped_operators(loaded.recipe):
        yield "operators etcli_aqlm_ops", why, lambda: _own(aqlm_library(console))
    try:
        own = own_operators(loaded)
    except EtcliError:
        return  # the recipe's own row says what is wrong
    for library in own:
        yield f"operators {library.name}", why, lambda library=library: _own(built_library(library, console))  # type: ignore[misc]


def _own(path: Path) -> tuple[str, str]:
    return _load(path.name, _OURS, str(path), str(path))


def _shipped_with_executorch() -> Iterable[Need]:
    """ExecuTorch's own operators for PyTorch. etcli does without them, so one that does not load is a warning: other tools look for it."""
    name_of = "operators for PyTorch {}"
    why = "not needed by etcli: ExecuTorch's own export scripts load it"
    try:
        root = executorch.host_package().root
    except EtcliError:
        return  # a row of its own says so
    for path in sorted(root.rglob("*aot_lib*.so")):
        name = name_of.format(path.name)
        try:
            yield Need(name, why, "ok", *_load(path.name, _THEIRS, str(path), str(path)))
        except EtcliError as error:
            yield Need(name, why, "warning", str(error), str(path), error.problems[0].hint)


def _load(what: str, code: str, argument: str, where: str) -> tuple[str, str]:
    """What loading says, and `where`.

    Raises:
        ToolError: `load.refused`, with the last words of the process: the loader's message, or the exception's.
    """

    def refused(why: str) -> ToolError:
        return ToolError(f"{what} cannot be loaded: {why}", code="load.refused", hint=_remedy(why))

    printed = tried_apart(code, argument, Path.cwd(), refused)
    try:
        return str(json.loads(printed.splitlines()[-1])), where
    except (IndexError, ValueError):
        raise refused(f"it printed {printed[-80:]!r}") from None


def _remedy(why: str) -> str:
    """What the loader's message usually means."""
    if "undefined symbol" in why:
        return "It was built for another release of PyTorch or ExecuTorch: install the releases that etcli pins into one fresh environment."
    if "cannot open shared object file" in why:
        return "A library that it needs is missing: install the package again (python -m pip install --force-reinstall --no-deps NAME)."
    if "No module named" in why:
        return "Install the package that the message names."
    if "GLIBC" in why or "CXXABI" in why:
        return "It was built on a newer system than this one: use a newer Linux, or a wheel for this one."
    return "Run the import by hand to see the whole message; a fresh environment with the releases that etcli pins is the usual cure."
