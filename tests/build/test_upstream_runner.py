"""`runner: mtk` for Android: upstream's runner and delegate are built from the checkout, with the same care as ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from executorch_standin import PORTABLE_OPERATORS, PRIM_OPERATORS, standin_checkout
from ndk_standin import StandIn, standin_ndk

from etcli.build import components as parts_of
from etcli.build.stage import BuildResult
from etcli.build.upstream import LIBRARY, PROGRAM
from etcli.common.errors import ToolError
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.executorch import load_executorch

Builder = Callable[..., BuildResult]
Recipes = Callable[..., LoadedRecipe]
HEADER = "backends/mediatek/runtime/include/api/NeuronAdapter.h"


@pytest.fixture(scope="module")
def ndk(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return standin_ndk(tmp_path_factory.mktemp("ndk") / "ndk", "27.2.12479018")


@pytest.fixture
def recipe(
    ndk: StandIn, make_recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], LoadedRecipe]:
    """A recipe for the mtk runner, with a checkout that lacks the vendor's header."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    names = [*(part.cmake_target for part in parts_of._ALWAYS), "backend_neuron"]
    checkout = standin_checkout(tmp_path, submodules=load_executorch().submodules(names), upstream=True)
    return lambda: make_recipe(
        export={"backend": "portable", "cache": "shift"},
        run={"runner": "mtk"},
        build={"ndk": str(ndk.root), "executorch": {"from": "source", "root": str(checkout)}},
    )


def test_upstreams_runner_is_staged_and_starts(
    builder: Builder, recipe: Callable[[], LoadedRecipe], ndk: StandIn, tmp_path: Path, native: Path
) -> None:
    with pytest.raises(ToolError, match=r"needs MediaTek's NeuronAdapter\.h") as caught:
        builder(target="android", recipe=recipe())
    [problem] = caught.value.problems
    assert problem.code == "executorch.vendor_header"
    header = tmp_path / "executorch" / HEADER
    assert str(header) in str(problem.hint)
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text("#define NEURON_NO_ERROR 0\n")

    # The small tree's own programs would need its operators, which the mtk runner's builds leave out.
    shutil.rmtree(native / "attention")
    result = builder(target="android", recipe=recipe())
    manifest = result.manifest
    assert manifest is not None
    staged = {file.path: file for file in manifest.stage}
    assert staged[PROGRAM].executable
    assert staged[LIBRARY].elf is not None
    assert staged[LIBRARY].elf.load_alignment == 16384
    # Two C++ binaries share one process and one C++ runtime.
    assert manifest.stl == "c++_shared"
    assert "libc++_shared.so" in staged
    assert manifest.executorch_provider == "source"
    assert "NeuropilotBackend" in manifest.backends
    # The delegate brings the operators: were the program linked with others, its registry would end it here.
    done = ndk.run(result.folder / "stage" / PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split()) == sorted([*PORTABLE_OPERATORS, *PRIM_OPERATORS, "NeuropilotBackend"])
