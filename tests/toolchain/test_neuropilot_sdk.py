"""MediaTek's SDK: where it is looked for, and each of its parts right, wrong, or missing with where it comes from."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest
import samples
from vendor_sdk import CONVERTER, NEURON, make_library, make_python, make_sdk

from etcli.common.errors import ExitCode, ToolError
from etcli.common.needs import Need
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.neuropilot import Library, neuropilot
from etcli.toolchain.neuropilot import check_library, device_needs, find_library, find_sdk, sdk_need
from etcli.toolchain.neuropilot_wheels import compiler_needs

ADAPTER, ALLOCATOR = neuropilot().libraries
RIGHT = {
    "mtk_converter": "8.13.0+public",
    "mtk_neuron": "8.2.23",
    **{name: metadata.version(name) for name in ("etcli", "executorch", "torch")},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sdk(tmp_path_factory.mktemp("sdk"))


def recipe(
    folder: Path, sdk: Path | str | None, *, python: Path | str | None = None, runner: str = "etcli"
) -> LoadedRecipe:
    export = {"backend": "neuron", "precision": "A16W8", **({"python": str(python)} if python is not None else {})}
    neuron = {"platform": "mt6991", **({"sdk": str(sdk)} if sdk is not None else {})}
    return samples.make_recipe(folder, export=export, neuron=neuron, run={"runner": runner})


def by_name(needs: object) -> dict[str, Need]:
    assert not isinstance(needs, str)
    return {need.name: need for need in needs}  # type: ignore[attr-defined]


@pytest.mark.known_failure("neuron-sdk-variables")
def test_the_recipe_then_the_variable_name_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    (theirs / "lib.so").write_bytes(b"")
    assert find_sdk(recipe(tmp_path, "ours")).root == ours
    for value in (theirs, theirs / "lib.so"):  # the folder, or a file in it
        monkeypatch.setenv("MEDIATEK_SDK_ROOT", str(value))
        found = find_sdk(recipe(tmp_path, None))
        assert (found.root, found.said_by, found.overruled) == (theirs, "$MEDIATEK_SDK_ROOT", None)
    found = find_sdk(recipe(tmp_path, "ours"))
    assert (found.root, found.said_by) == (ours, "neuron.sdk")
    need = sdk_need(recipe(tmp_path, "ours"))
    assert need.status == "warning"
    assert "neuron.sdk wins over $MEDIATEK_SDK_ROOT" in (need.hint or "")
    monkeypatch.setenv("MEDIATEK_SDK_ROOT", str(ours))
    assert sdk_need(recipe(tmp_path, "ours")).status == "ok"


def test_the_simulator_in_other_letters_is_recognised(tmp_path: Path) -> None:
    assert "neuron.sdk: simulator" in (sdk_need(recipe(tmp_path, "Simulator")).hint or "")


@pytest.mark.known_failure("neuron-sdk-parts")
@pytest.mark.parametrize(("sdk", "code"), [(None, "neuropilot.unnamed"), ("nowhere", "neuropilot.missing")])
def test_without_an_sdk_every_part_is_named_with_where_it_comes_from(
    tmp_path: Path, sdk: str | None, code: str
) -> None:
    loaded = recipe(tmp_path, sdk, python="nowhere/python", runner="mtk")
    found = by_name([sdk_need(loaded), *compiler_needs(loaded), *device_needs(loaded)])
    problem = found["NeuroPilot Express SDK"].problem
    assert problem is not None
    assert (problem.code, problem.exit_code) == (code, ExitCode.ENVIRONMENT)
    for name in (
        "NeuroPilot Express SDK",
        "mtk_converter",
        "mtk_neuron",
        ADAPTER.name,
        ALLOCATOR.name,
        "NeuronAdapter.h",
    ):
        assert found[name].status == "missing", name
        assert neuropilot().portal in (found[name].hint or ""), name
    assert found["localhost"].status == "ok"


def test_only_what_the_runner_needs_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sdk").mkdir()
    found = by_name(device_needs(recipe(tmp_path, "sdk")))
    assert {name: need.status for name, need in found.items()} == {
        ADAPTER.name: "missing",
        ALLOCATOR.name: "not needed",
        "NeuronAdapter.h": "not needed",
    }


def test_the_simulator_needs_nothing_and_says_simulated(tmp_path: Path) -> None:
    loaded = recipe(tmp_path, "simulator")
    assert list(device_needs(loaded)) == []
    need = sdk_need(loaded)
    assert need.status == "ok"
    assert "simulated" in need.version


def test_a_whole_sdk_is_found(tmp_path: Path, whole: Path) -> None:
    found = by_name(device_needs(recipe(tmp_path, whole, runner="mtk")))
    assert {need.status for need in found.values()} == {"ok"}
    assert found[ADAPTER.name].where == str(whole / "lib/arm64-v8a" / ADAPTER.name)


@pytest.mark.known_failure("neuron-sdk-variables")
def test_a_library_is_named_by_its_file_or_its_folder(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = whole / "lib" / "arm64-v8a" / ALLOCATOR.name
    renamed = tmp_path / "mine.so"
    shutil.copy(file, renamed)
    for value in (file, file.parent):
        monkeypatch.setenv(ALLOCATOR.environment, str(value))
        assert find_library(ALLOCATOR, None) == file
    monkeypatch.setenv(ALLOCATOR.environment, str(renamed))
    with pytest.raises(ToolError, match="would not be found"):
        find_library(ALLOCATOR, whole)
    monkeypatch.setenv(ALLOCATOR.environment, str(tmp_path))
    with pytest.raises(ToolError, match="NEURON_BUFFER_ALLOCATOR_LIB: there is no") as caught:
        find_library(ALLOCATOR, whole)
    assert caught.value.problems[0].code == "neuropilot.library"


def test_of_several_files_that_for_phones_is_taken(tmp_path: Path) -> None:
    make_library(tmp_path / ADAPTER.name, ADAPTER.symbols, compiler="gcc")
    right = make_library(tmp_path / "a" / "deep" / "folder" / ADAPTER.name, ADAPTER.symbols)
    assert find_library(ADAPTER, tmp_path) == right


@pytest.mark.parametrize("compiled", ["machine", "simulated", "symbols", "damaged"])
def test_a_wrong_library_is_refused(tmp_path: Path, compiled: str) -> None:
    path = tmp_path / ADAPTER.name
    code = f"neuropilot.library_{compiled}"
    if compiled == "machine":
        make_library(path, ADAPTER.symbols, compiler="gcc")
    elif compiled == "simulated":
        make_library(path, ADAPTER.symbols, mark="ETCLINPU")
    elif compiled == "symbols":
        make_library(path, ADAPTER.symbols[5:])
    else:
        path.write_bytes(make_library(tmp_path / "whole.so", ADAPTER.symbols).read_bytes()[:100])
        code = "elf.invalid"
    need = by_name(device_needs(recipe(tmp_path, tmp_path)))[ADAPTER.name]
    assert need.problem is not None
    assert (need.status, need.problem.code, need.problem.exit_code) == ("missing", code, ExitCode.ENVIRONMENT)
    assert need.problem.file == path


@pytest.mark.known_failure("neuron-allocator-eras")
def test_the_allocator_of_the_old_era_is_told(tmp_path: Path) -> None:
    old = ("_ZN15BufferAllocator4FindEPKv", "_ZN15BufferAllocator11GetInstanceEv")
    path = make_library(tmp_path / ALLOCATOR.name, old)
    with pytest.raises(ToolError, match="of an old SDK, which offers C\\+\\+ classes") as caught:
        check_library(ALLOCATOR, path)
    [problem] = caught.value.problems
    assert problem.code == "neuropilot.library_old"
    assert "before 0.7" in (problem.hint or "")
    check_library(ALLOCATOR, make_library(path, (*old, *ALLOCATOR.symbols)))


def test_symbols_are_those_of_the_contract() -> None:
    """The delegate's own declarations name them too."""
    declared = (Path(__file__).parents[2] / "native" / "neuron" / "neuron.h").read_text(encoding="utf-8")
    assert len(ADAPTER.symbols) == len(set(ADAPTER.symbols)) == 25
    assert [name for name in ADAPTER.symbols if name not in declared] == []
    libraries: tuple[Library, ...] = neuropilot().libraries
    assert [library.name for library in libraries] == ["libneuronusdk_adapter.mtk.so", "libneuron_buffer_allocator.so"]


def wheels_of(tmp_path: Path, packages: dict[str, str], sdk: Path | None = None, **changes: str) -> dict[str, Need]:
    python = make_python(tmp_path / "bin" / "python", packages, **changes)
    return by_name(compiler_needs(recipe(tmp_path, sdk or "nowhere", python=python)))


def test_the_right_packages(tmp_path: Path) -> None:
    found = wheels_of(tmp_path, RIGHT)
    assert {need.status for need in found.values()} == {"ok"}
    assert found["mtk_converter"].version == "8.13.0+public"
    assert found["python of the NPU's compiler"].version == "CPython 3.10.13"
    assert wheels_of(tmp_path, {**RIGHT, "mtk_neuron": "8.2.19"})["mtk_neuron"].status == "ok"


@pytest.mark.known_failure("neuron-wheel-versions")
@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("mtk_neuron", "8.2.13", "missing"),
        ("mtk_neuron", "8.2.30", "warning"),
        ("mtk_converter", "8.9.1+public", "missing"),
        ("mtk_converter", "8.13.0", "warning"),
        ("mtk_converter", "odd", "missing"),
    ],
)
def test_packages_of_another_version(tmp_path: Path, name: str, version: str, status: str) -> None:
    need = wheels_of(tmp_path, {**RIGHT, name: version})[name]
    assert need.status == status
    if status == "missing":
        assert need.problem is not None
        assert need.problem.code == "neuropilot.wheel_version"
    else:
        assert "not validated" in (need.hint or "")


@pytest.mark.known_failure("neuron-sdk-parts")
def test_missing_packages_are_installed_from_the_sdk_that_has_them(tmp_path: Path, whole: Path) -> None:
    found = wheels_of(tmp_path, {}, whole)
    for name, file in (("mtk_converter", CONVERTER), ("mtk_neuron", NEURON)):
        need = found[name]
        assert need.problem is not None
        assert need.problem.code == "neuropilot.wheel"
        assert need.hint == f"Install it: {tmp_path}/bin/python -m pip install {whole / file}"
    for name in ("etcli", "executorch", "torch"):
        assert found[f"{name} for the NPU's compiler"].status == "missing"


def test_a_wheel_for_another_python_is_said_to_be_one(tmp_path: Path) -> None:
    sdk = tmp_path / "sdk"
    sdk.mkdir()
    (sdk / CONVERTER.replace("cp310", "cp38")).write_bytes(b"")
    need = wheels_of(tmp_path, {}, sdk)["mtk_converter"]
    assert "which is for another Python than 3.10: download that for cp310" in (need.hint or "")


@pytest.mark.known_failure("neuron-python")
@pytest.mark.parametrize(
    ("changes", "name", "code"),
    [
        ({"version": "3.11.7"}, "python of the NPU's compiler", "neuropilot.python"),
        ({"implementation": "PyPy"}, "python of the NPU's compiler", "neuropilot.python"),
        ({"machine": "aarch64"}, "system of the NPU's compiler", "neuropilot.system"),
        ({"system": "Darwin"}, "system of the NPU's compiler", "neuropilot.system"),
    ],
)
def test_an_interpreter_that_the_converter_does_not_exist_for(
    tmp_path: Path, changes: dict[str, str], name: str, code: str
) -> None:
    need = wheels_of(tmp_path, RIGHT, **changes)[name]
    assert need.problem is not None
    assert (need.problem.code, need.problem.exit_code) == (code, ExitCode.ENVIRONMENT)
    assert need.problem.hint


def test_another_executorch_than_this_etclis_is_refused(tmp_path: Path) -> None:
    found = wheels_of(tmp_path, {**RIGHT, "executorch": "1.4.0"})
    need = found["executorch for the NPU's compiler"]
    assert need.problem is not None
    assert need.problem.code == "neuropilot.worker_package"
    local = {**RIGHT, "torch": metadata.version("torch").partition("+")[0] + "+cu999"}
    assert wheels_of(tmp_path, local)["torch for the NPU's compiler"].status == "ok"


def test_etcli_itself_is_never_to_be_installed_by_its_bare_name(tmp_path: Path) -> None:
    without = {name: version for name, version in RIGHT.items() if name != "etcli"}
    need = wheels_of(tmp_path, without)["etcli for the NPU's compiler"]
    assert need.problem is not None
    assert need.problem.hint is not None
    assert need.problem.hint.endswith(" -m pip install PATH")
