"""Runners of recipes with backend neuron hold the delegate; others do not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from etcli.build.audit import audit, auditing
from etcli.build.components import components, operator_libraries, simulated_npu
from etcli.build.stage import BuildOptions, build
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.delegates import NEURON, read_delegate
from etcli.tables.neuropilot import neuropilot
from etcli.tables.simulated_npu import read_simulated_npu
from etcli.tables.targets import load_targets
from etcli.toolchain import qemu
from etcli.toolchain.elf import defined_symbols, read_elf
from etcli.toolchain.registrations import Registrations

Recipes = Callable[..., LoadedRecipe]

RECIPE = {
    "export": {"backend": "neuron", "precision": "A16W8"},
    "neuron": {"platform": "mt6991", "sdk": "simulator", "calibration": {"prompts": ["one"]}},
}


def test_only_our_runner_of_backend_neuron_has_the_delegate(make_recipe: Recipes) -> None:
    native = asset_dir("native")
    (delegate,) = (one for one in operator_libraries(make_recipe(**RECIPE), native) if one.backends)
    assert delegate == read_delegate(native / NEURON)
    assert delegate.backends == ("NeuropilotBackend",)
    assert delegate.operators == ()
    compiled = {path.name for path in delegate.root.glob("*.cpp")}
    assert set(delegate.sources) == compiled
    assert {"neuron.h", "component.yaml", *compiled} <= set(delegate.hashes)
    assert not [name for name in delegate.hashes if name.startswith("tests/")]
    assert not [one for one in operator_libraries(make_recipe(), native) if one.backends]
    upstream = make_recipe(**RECIPE, run={"runner": "mtk"})
    assert not [one for one in operator_libraries(upstream, native) if one.backends]
    names = [part.cmake_target for part in components(make_recipe(**RECIPE).recipe, (delegate,))]
    assert names == ["runtime", "threadpool", "kernels_optimized"]


def test_the_simulated_npu_comes_with_the_simulator_alone(make_recipe: Recipes) -> None:
    native = asset_dir("native")
    found = simulated_npu(make_recipe(**RECIPE).recipe, native)
    assert found == read_simulated_npu(native)
    vendor = make_recipe(**{**RECIPE, "neuron": {**RECIPE["neuron"], "sdk": "./simulator"}})
    assert simulated_npu(vendor.recipe, native) is None
    assert simulated_npu(make_recipe().recipe, native) is None
    compiled = {name for library in found.libraries for name in library.sources}
    assert compiled == {path.name for path in (native / "neuron_sim").glob("*.cpp")}
    assert {f"neuron_sim/{name}" for name in (*compiled, "adapter.map", "libraries.yaml", "blob.h")} <= set(
        found.hashes
    )
    assert not [name for name in found.hashes if "tests/" in name]
    names = [part.cmake_target for part in components(vendor.recipe, (), found)]
    assert names == ["runtime", "threadpool", "kernels_optimized", "kernels_quantized"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("libraries: {libx.so: {sources: [none.cpp], exports: x.map}}", "none.cpp, x.map"),
        ("libraries: {x.so: {sources: [x.cpp], exports: x.map}}", "x.so"),
        ("libraries: {libx.so: {sources: [../x.cpp], exports: x.map}}", "pattern"),
        ("libraries: {}", "at least 1"),
        ("[", "flow"),
    ],
)
def test_a_wrong_description_of_the_simulated_npu(tmp_path: Path, text: str, said: str) -> None:
    folder = tmp_path / "neuron_sim"
    folder.mkdir()
    with pytest.raises(BuildError) as caught:
        read_simulated_npu(tmp_path)
    assert caught.value.problems[0].code == "build.sources"
    (folder / "libraries.yaml").write_text(text)
    with pytest.raises(BuildError, match=said):
        read_simulated_npu(tmp_path)


def check_simulated(manifest: BuildManifest, stage: Path) -> None:
    """The libraries are staged under the vendor's names, said to be simulated, and export the interface alone."""
    assert manifest.simulated
    staged = {file.path: file for file in manifest.stage}
    for library in neuropilot().libraries:
        assert "simulated" in staged[library.name].reason
        assert not staged[library.name].executable
        assert set(library.symbols) <= defined_symbols(stage / library.name)
    assert "libetcli_neuron_sim.so" in staged
    assert "libexecutorch_kernels_quantized.so" in staged
    for name in staged:
        found = read_elf(stage / name, error=BuildError)
        assert found.machine == manifest.machine


@pytest.mark.parametrize("target", ["host", pytest.param("linux-aarch64", marks=pytest.mark.full)])
def test_the_runner_holds_the_delegate(target: str, make_recipe: Recipes, tmp_path: Path) -> None:
    loaded = make_recipe(**RECIPE)
    result = build(loaded, Workspace(tmp_path / "ws", "small"), BuildOptions(target), Console(verbosity=-1))
    manifest = result.manifest
    assert manifest is not None
    assert manifest.backends == ("NeuropilotBackend",)
    assert "etcli_neuron" not in [one.name for one in manifest.custom_ops]
    check_simulated(manifest, result.folder / "stage")
    runner = result.folder / "stage" / "etcli_executor_runner"
    # The vendor's libraries are opened while it runs: it starts on a device without them, and then says which are missing.
    assert not [name for name in read_elf(runner, error=BuildError).needed if "neuron" in name or "apuware" in name]
    assert b"libneuronusdk_adapter.mtk.so\0" in runner.read_bytes()
    facts = load_targets()[target]
    emulator: Sequence[str | Path] = (qemu.find(facts), "-L", str(facts.sysroot)) if facts.sysroot else ()
    done = subprocess.run([*emulator, runner, "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    # Nothing has to be done again, and a changed source of the delegate would be compiled.
    again = build(loaded, Workspace(tmp_path / "ws", "small"), BuildOptions(target), Console(verbosity=-1))
    assert again.current


def test_a_delegate_that_the_linker_left_out_is_a_fault(
    make_recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    program = "etcli_llama_runner"
    (stage / program).write_bytes(Path("/bin/true").read_bytes())
    delegate = read_delegate(asset_dir("native") / NEURON)
    seen = audit(stage, load_targets()["host"], (program,), (), (delegate,))
    (found,) = (problem for problem in seen.problems if problem.code == "audit.not_registered")
    assert "does not register NeuropilotBackend" in found.message

    def registered(*_: object, **__: object) -> Registrations:
        return Registrations((), ("NeuropilotBackend",))

    monkeypatch.setattr(auditing, "read_registrations", registered)
    seen = audit(stage, load_targets()["host"], (program,), (), (delegate,))
    assert not [problem for problem in seen.problems if problem.code == "audit.not_registered"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("name: [", "while parsing"),
        ("name: x\nbackends: [XBackend]\nsources: [a.cpp]\n", "not there: a.cpp"),
        ("name: x\nbackends: []\nsources: [a.cpp]\n", "backends"),
        ("name: x\nbackends: [XBackend]\nsources: [../a.cpp]\n", "leads out"),
        ("name: x\nbackends: [XBackend]\nsources: [a.cpp]\nextra: 1\n", "extra"),
    ],
)
def test_a_description_that_is_wrong_is_told(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "component.yaml").write_text(text)
    with pytest.raises(BuildError, match=words) as caught:
        read_delegate(tmp_path)
    assert caught.value.problems[0].code == "build.sources"
