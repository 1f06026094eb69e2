"""A small native tree of two real programs, and recipes to build it with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etcli.build import stage
from etcli.build.stage import BuildOptions, BuildResult, build
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe

LIST = """\
library: [shared.cpp]
programs:
  list_kernels: kernels.cpp
  list_backends: backends.cpp
definitions: [ETCLI_VERSION]
"""
SHARED = """\
#include <executorch/runtime/platform/runtime.h>
const char* version() { executorch::runtime::runtime_init(); return ETCLI_VERSION; }
"""
# The registry's own list: the oracle of what is read from the libraries' tables.
KERNELS = """\
#include <cstdio>
#include <executorch/runtime/kernel/operator_registry.h>
const char* version();
int main() {
  std::fprintf(stderr, "%s\\n", version());
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) std::printf("%s\\n", kernel.name_);
}
"""
BACKENDS = """\
#include <cstdio>
#include <executorch/runtime/backend/interface.h>
const char* version();
int main() {
  std::fprintf(stderr, "%s\\n", version());
  for (size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i)
    std::printf("%s\\n", executorch::runtime::get_backend_name(i).get());
}
"""
# As native/attention in the large: operators, and a file with flags of its own.
OPERATORS = """\
name: etcli_attention
namespace: etcli
operators: ["ring_attention.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", "last_row.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"]
sources: [operators.cpp]
architectures:
  x86_64: {special.cpp: [-mavx2, -mfma]}
  aarch64: {special.cpp: [-march=armv8.2-a]}
components: [runtime]
"""
KERNEL_TABLE = """\
#include <executorch/runtime/kernel/operator_registry.h>
using namespace executorch::runtime;
void special();
static void run(KernelRuntimeContext&, Span<EValue*>) { special(); }
static const Kernel kernels[] = {Kernel("etcli::ring_attention.out", run), Kernel("etcli::last_row.out", run)};
[[maybe_unused]] static const Error registered = register_kernels({kernels, 2});
"""
SPECIAL = """\
#if defined(__x86_64__) && !defined(__AVX2__)
#error "compiled without its flags"
#endif
void special() {}
"""


def write_native(folder: Path) -> Path:
    """Write the small native tree and return it."""
    runner = folder / "runner"
    runner.mkdir(parents=True)
    for name, text in (
        ("sources.yaml", LIST),
        ("shared.cpp", SHARED),
        ("kernels.cpp", KERNELS),
        ("backends.cpp", BACKENDS),
    ):
        (runner / name).write_text(text)
    operators = folder / "attention"
    operators.mkdir()
    for name, text in (("op.yaml", OPERATORS), ("operators.cpp", KERNEL_TABLE), ("special.cpp", SPECIAL)):
        (operators / name).write_text(text)
    return folder


@pytest.fixture
def make_recipe(tmp_path: Path) -> Callable[..., LoadedRecipe]:
    """Makes a loaded recipe out of sections; it never needs its checkpoint."""

    def make(**sections: object) -> LoadedRecipe:
        document = {"name": "small", "model": {"source": "model.gguf"}, **sections}
        return LoadedRecipe(Recipe.model_validate(document), tmp_path / "recipe.yaml", tmp_path, document)

    return make


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A small native tree of this test's own."""
    return write_native(tmp_path / "native")


@pytest.fixture
def builder(
    native: Path, tmp_path: Path, make_recipe: Callable[..., LoadedRecipe], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., BuildResult]:
    """Builds this test's native tree, with the fields of `BuildOptions` as keywords."""
    monkeypatch.setattr(stage, "asset_dir", {"native": native}.__getitem__)

    def run(
        target: str = "host", *, recipe: LoadedRecipe | None = None, console: Console | None = None, **options: bool
    ) -> BuildResult:
        workspace = Workspace(tmp_path / "ws", "small")
        chosen = BuildOptions(target=target, **options)
        return build(recipe or make_recipe(), workspace, chosen, console or Console(verbosity=-1))

    return run
