"""Where the stage of an Android build gets MediaTek's libraries from: a folder like the SDK's, of files that the cross compiler made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from vendor_sdk import make_library, make_sdk

from etcli.build.stage import BuildOptions, build
from etcli.build.vendor import copy_vendor_libraries, vendor_libraries
from etcli.common.errors import EtcliError, ExitCode
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import known_target

Recipes = Callable[..., LoadedRecipe]
NAMES = ["libneuronusdk_adapter.mtk.so", "libneuron_buffer_allocator.so"]


@pytest.fixture
def recipe(make_recipe: Recipes, tmp_path: Path) -> Callable[..., LoadedRecipe]:
    def make(sdk: str | None = str(tmp_path / "sdk"), **values: object) -> LoadedRecipe:
        export = {"backend": "neuron", "precision": "A16W8", "python": "python3"}
        return make_recipe(export=export, neuron={"platform": "mt6991", "sdk": sdk}, **values)

    return make


def found(loaded: LoadedRecipe, target: str = "android") -> tuple[Path, ...]:
    return vendor_libraries(loaded, known_target(target), Console(verbosity=-1))


def test_both_are_staged_for_android_whichever_the_runner(recipe: Recipes, tmp_path: Path) -> None:
    folder = make_sdk(tmp_path / "sdk") / "lib" / "arm64-v8a"
    for runner in ("etcli", "mtk"):
        assert found(recipe(run={"runner": runner})) == tuple(folder / name for name in NAMES)
    stage = tmp_path / "stage"
    stage.mkdir()
    copy_vendor_libraries(found(recipe()), stage)
    assert {path.name: path.read_bytes() for path in stage.iterdir()} == {
        name: (folder / name).read_bytes() for name in NAMES
    }


@pytest.mark.parametrize("target", ["host", "linux-aarch64"])
def test_other_targets_get_none(recipe: Recipes, tmp_path: Path, target: str) -> None:
    make_sdk(tmp_path / "sdk")
    assert found(recipe(), target) == ()


def test_the_simulated_npu_takes_none_of_them(
    recipe: Recipes, make_recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDIATEK_SDK_ROOT", str(make_sdk(tmp_path / "sdk")))
    assert found(recipe("simulator")) == ()
    assert found(make_recipe()) == ()


def test_what_is_not_there_is_left_to_the_phone(recipe: Recipes, tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    (sdk / "lib" / "arm64-v8a" / NAMES[1]).unlink()
    assert [path.name for path in found(recipe())] == NAMES[:1]
    assert found(recipe(sdk=None)) == ()


def test_a_folder_that_is_named_and_not_there_is_refused(
    recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is looked at that takes time: the build's other problems are told with it."""
    with pytest.raises(EtcliError, match=f"neuron.sdk: there is no folder {tmp_path}/nowhere") as caught:
        found(recipe(str(tmp_path / "nowhere")))
    assert (caught.value.problems[0].code, caught.value.exit) == ("neuropilot.missing", ExitCode.ENVIRONMENT)
    options = BuildOptions("android", ndk=tmp_path / "no-ndk", dry_run=True)
    with pytest.raises(EtcliError) as caught:
        build(recipe(str(tmp_path / "nowhere")), Workspace(tmp_path / "ws", "small"), options, Console(verbosity=-1))
    codes = [problem.code for problem in caught.value.problems]
    assert {"neuropilot.missing", "ndk.not_found", "executorch.not_provided"} <= set(codes)
    monkeypatch.setenv("MEDIATEK_SDK_ROOT", str(tmp_path / "elsewhere"))
    with pytest.raises(EtcliError, match="MEDIATEK_SDK_ROOT: there is no folder"):
        found(recipe(sdk=None))


def test_wrong_ones_are_refused_at_once(recipe: Recipes, tmp_path: Path) -> None:
    folder = make_sdk(tmp_path / "sdk") / "lib" / "arm64-v8a"
    make_library(folder / NAMES[0], [], mark="ETCLINPU")
    make_library(folder / NAMES[1], ["BufferAllocator_Find"])
    with pytest.raises(EtcliError) as caught:
        found(recipe())
    codes = [problem.code for problem in caught.value.problems]
    assert codes == ["neuropilot.library_simulated", "neuropilot.library_old"]
    assert caught.value.exit == ExitCode.ENVIRONMENT


def test_a_file_of_another_name_would_not_be_found_by_the_delegate(
    recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_sdk(tmp_path / "sdk") / "lib" / "arm64-v8a"
    other = folder / "libneuron_adapter.so.7"
    (folder / NAMES[0]).rename(other)
    monkeypatch.setenv("NEURON_USDK_ADAPTER_LIB", str(other))
    with pytest.raises(EtcliError, match="programs open libneuronusdk_adapter") as caught:
        found(recipe())
    assert caught.value.problems[0].code == "neuropilot.library"
