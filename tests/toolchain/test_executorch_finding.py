"""Which ExecuTorch a build gets: the flag before the recipe before the environment, and what `auto` makes of a folder."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from etcli.common.errors import ToolError
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tables.executorch import load_executorch
from etcli.tables.targets import known_target
from etcli.toolchain.executorch import Wanted, chosen, chosen_provider, host_package, wanted_by

HOST, ANDROID = known_target("host"), known_target("android")


def recipe(folder: Path, **executorch: str) -> LoadedRecipe:
    document = {"name": "small", "model": {"source": "model.gguf"}, "build": {"executorch": executorch}}
    return LoadedRecipe(Recipe.model_validate(document), folder / "recipe.yaml", folder, document)


def test_flag_before_recipe_before_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = recipe(tmp_path, **{"from": "source", "root": "ours"})
    assert wanted_by(recipe(tmp_path), ()).root is None
    monkeypatch.setenv("EXECUTORCH_ROOT", "/environment")
    assert (wanted_by(recipe(tmp_path), ()).root, wanted_by(recipe(tmp_path), ()).said_by) == (
        Path("/environment"),
        "$EXECUTORCH_ROOT",
    )
    assert (wanted_by(named, ()).root, wanted_by(named, ()).said_by) == (tmp_path / "ours", "build.executorch.root")
    flagged = wanted_by(named, ("runtime", "runtime"), flag=Path("/flag"))
    assert (flagged.root, flagged.said_by, flagged.components) == (Path("/flag"), "--executorch", ("runtime",))


def installation(folder: Path) -> Path:
    (folder / "lib/cmake/ExecuTorch").mkdir(parents=True)
    (folder / "lib/cmake/ExecuTorch/executorch-config.cmake").write_text("")
    return folder


def checkout(folder: Path) -> Path:
    folder.mkdir()
    for name in ("version.txt", "CMakeLists.txt"):
        (folder / name).write_text("")
    return folder


def test_what_auto_makes_of_a_folder(tmp_path: Path) -> None:
    prefix, source = installation(tmp_path / "prefix"), checkout(tmp_path / "source")
    for root, provider in ((prefix, "prefix"), (source, "source")):
        assert chosen_provider(ANDROID, Wanted(root=root)) == (provider, root)
        assert chosen_provider(HOST, Wanted(root=root, said_by="--executorch")) == (provider, root)
        # A variable of the environment does not change what a target with a wheel gets.
        assert chosen_provider(HOST, Wanted(root=root, said_by="$EXECUTORCH_ROOT")) == ("wheel", None)
        assert chosen_provider(HOST, Wanted("wheel", root)) == ("wheel", None)
    assert chosen_provider(HOST, Wanted("source", prefix)) == ("source", prefix)


def test_which_was_chosen_and_by_which_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, source = installation(tmp_path / "prefix"), checkout(tmp_path / "source")
    lines = {
        chosen(ANDROID, Wanted(root=prefix, said_by="$EXECUTORCH_ROOT")).line: (
            f"ExecuTorch, an installation in {prefix}: named by $EXECUTORCH_ROOT; what the folder holds"
        ),
        chosen(ANDROID, Wanted("source", source)).line: (
            f"ExecuTorch, a checkout in {source}: named by build.executorch.root; build.executorch says from: source"
        ),
        chosen(HOST, Wanted(root=prefix, said_by="$EXECUTORCH_ROOT")).line: (
            f"ExecuTorch {host_package().version}, the wheel of this Python in {host_package().root}: build.executorch is from: auto, which is the "
            f"wheel wherever the target has one, unless --executorch names a folder; $EXECUTORCH_ROOT names {prefix}, which is not used"
        ),
    }
    for said, expected in lines.items():
        assert said == expected
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    later = chosen(known_target("linux-aarch64"), Wanted("wheel"))
    assert later.root is None
    assert later.line.endswith("the wheel for manylinux_2_28_aarch64: build.executorch says from: wheel")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted(), "executorch.not_provided"),
        (Wanted("source"), "executorch.not_provided"),
        (Wanted("wheel"), "executorch.no_wheel"),
        (Wanted(root=Path("/nowhere")), "executorch.not_found"),
    ],
)
def test_none_for_android(wanted: Wanted, code: str) -> None:
    with pytest.raises(ToolError) as caught:
        chosen_provider(ANDROID, wanted)
    [problem] = caught.value.problems
    assert (problem.code, problem.exit_code) == (code, 3)
    assert problem.hint
    if code == "executorch.not_provided":
        release = importlib.metadata.version("executorch").partition("+")[0]
        assert f"--branch v{release} https://github.com/pytorch/executorch" in problem.hint


def test_a_component_that_only_a_wheel_has(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="names backend_openvino") as caught:
        load_executorch().chosen(["runtime", "backend_openvino"])
    assert caught.value.problems[0].code == "executorch.unknown_component"


def test_options_are_those_of_the_components_and_no_others() -> None:
    table = load_executorch()
    lean = table.options(["runtime"])
    rich = table.options(["runtime", "backend_xnnpack"])
    assert {name for name in rich if name not in lean} == {
        "EXECUTORCH_BUILD_XNNPACK",
        "EXECUTORCH_BUILD_PTHREADPOOL",
        "EXECUTORCH_BUILD_CPUINFO",
    }
    assert not [name for name, value in rich.items() if name.endswith("_AOT") and value != "OFF"]
    assert "backends/xnnpack/third-party/XNNPACK" not in table.submodules(["runtime"])
