"""`etcli doctor` of recipes for MediaTek's NPU: vendor files, interpreter, localhost, the device's SoC, memory and disk; and export's preflight."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import samples
from local_device import LocalDevice
from vendor_sdk import make_python, make_sdk

from etcli.common.errors import EtcliError, ExitCode
from etcli.common.needs import Need
from etcli.common.workspace import Workspace
from etcli.export import needs as needs_module
from etcli.export.needs import check_needs, size_needs
from etcli.export.stage import ExportOptions, export
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.loader import load
from etcli.verbs.devices import device_info
from etcli.verbs.doctor import doctor

RIGHT = {
    "mtk_converter": "8.13.0+public",
    "mtk_neuron": "8.2.23",
    **{name: metadata.version(name) for name in ("etcli", "executorch", "torch")},
}
Recipes = Callable[..., LoadedRecipe]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipes:
    """A recipe for the NPU with a whole SDK and the right interpreter, but for what a test takes away."""
    make_sdk(tmp_path / "sdk")
    make_python(tmp_path / "python", RIGHT)

    def make(platform: str = "mt6991", sdk: str = "sdk", python: str = "./python") -> LoadedRecipe:
        path = tmp_path / "r.yaml"
        worker = "" if sdk == "simulator" else f", python: {python}"
        path.write_text(
            f"name: a\nmodel: {{source: none}}\nexport: {{backend: neuron, precision: A16W8{worker}}}\n"
            f"neuron: {{platform: {platform}, sdk: {sdk}}}\nbuild: {{target: host}}\n"
        )
        return load(str(path))

    return make


def found(loaded: LoadedRecipe, device: LocalDevice | None = None) -> dict[str, Need]:
    result = doctor(loaded, None, None if device is None else lambda: device, Console(verbosity=-1))
    return {need.name: need for need in result.needs}


VENDOR = (
    "NeuroPilot Express SDK",
    "mtk_converter",
    "mtk_neuron",
    "libneuronusdk_adapter.mtk.so",
    "libneuron_buffer_allocator.so",
)


def test_each_vendor_file_is_a_line(recipe: Recipes) -> None:
    needs = found(recipe())
    for name in (
        *VENDOR,
        "NeuronAdapter.h",
        "localhost",
        "python of the NPU's compiler",
        "system of the NPU's compiler",
    ):
        assert needs[name].status == "ok", needs[name]


@pytest.mark.known_failure("neuron-sdk-parts")
def test_a_built_in_recipe_tells_all_that_is_missing_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEURON_PYTHON", "LLAMA_3_8B"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    result = doctor(load("llama3-8b-neuron"), "host", None, Console(verbosity=-1))
    missing = {need.name for need in result.missing}
    assert {"checkpoint", "mtk_converter", "mtk_neuron", "libneuronusdk_adapter.mtk.so"} <= missing
    with pytest.raises(EtcliError) as caught:
        result.raise_if_missing()
    assert len(caught.value.problems) == len(result.missing)


def test_the_simulated_npu_is_said_to_be_simulated(recipe: Recipes) -> None:
    needs = found(recipe(sdk="simulator"))
    assert "simulated" in needs["NPU"].version
    assert not set(needs) & {*VENDOR, "localhost"}


def test_a_device_of_another_soc_is_missing_its_npu(recipe: Recipes, tmp_path: Path) -> None:
    device = LocalDevice(tmp_path / "device")
    assert found(recipe("mt6991"), device)["NPU"].status == "ok"
    need = found(recipe("DX3"), device)["NPU"]
    assert need.problem is not None
    assert (need.problem.code, need.problem.exit_code) == ("deploy.platform", ExitCode.DEPLOY)


@pytest.mark.known_failure("neuron-library-folders")
def test_the_devices_own_libraries_are_shown(recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = LocalDevice(tmp_path / "device")
    monkeypatch.setattr(device, "stat", lambda _: None)
    assert device_info(device).npu_libraries == ()
    there = "/system_ext/lib64/libneuronusdk_adapter.mtk.so"
    monkeypatch.setattr(device, "stat", lambda remote: "a file" if remote == there else None)
    info = device_info(device)
    assert info.npu_libraries == (there,)
    assert info.platform == "mt6991"
    assert info.facts.emulated
    assert found(recipe(), device)["NPU libraries of the device"].where == there
    device.soc_properties = {"ro.soc.model": "MT8792"}
    assert device_info(device).platform is None


@pytest.mark.known_failure("neuron-memory-and-disk")
def test_memory_and_disk_are_held_against_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates come from the checkpoint's headers; here of the default model, whose numbers stand in for the file."""
    simulated = load("smollm2-135m-neuron-sim")
    plain = load("smollm2-135m")
    from etcli.manifests.model import ModelConfig, RopeConfig

    config = ModelConfig(
        architecture="LlamaForCausalLM",
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
        context_length=8192,
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=1e5),
        tied_embeddings=True,
    )
    monkeypatch.setattr(needs_module, "peek", lambda _: tmp_path)
    monkeypatch.setattr(needs_module, "open_checkpoint", lambda *_: type("Opened", (), {"config": config}))

    def needed(loaded: LoadedRecipe, available: int) -> tuple[str, str]:
        monkeypatch.setattr(needs_module, "available_bytes", lambda: available)
        memory, disk = size_needs(loaded, tmp_path)
        assert "needed" in disk.version
        return memory.status, memory.version

    assert needed(simulated, 64 << 30)[0] == "ok"
    status, text = needed(simulated, 1 << 30)
    assert status == "warning"
    assert "about" in text
    # the NPU's compiler holds the weights several times
    assert needed(plain, 1536 << 20)[0] == "ok"
    assert needed(simulated, 1536 << 20)[0] == "warning"


def test_an_export_is_refused_before_anything_is_read(recipe: Recipes) -> None:
    console = Console(verbosity=-1)
    check_needs(recipe(), console)
    assert console.warnings == []
    check_needs(recipe(sdk="simulator"), console)
    assert [(warning.code, "simulated" in warning.message) for warning in console.warnings] == [
        ("neuron.simulated", True)
    ]
    with pytest.raises(EtcliError) as caught:
        check_needs(recipe(sdk="nowhere", python="nowhere/python"), Console(verbosity=-1))
    codes = [problem.code for problem in caught.value.problems]
    assert codes == ["neuropilot.missing", "python.missing", "neuropilot.wheel", "neuropilot.wheel"]
    assert caught.value.exit == ExitCode.ENVIRONMENT


def test_a_platform_that_upstream_names_no_phone_for_is_said_to_be_one(recipe: Recipes) -> None:
    need = found(recipe("Dimensity 9500"))["NPU platform"]
    assert (need.status, need.version) == ("warning", "mt6993 (Dimensity 9500, not validated)")
    assert found(recipe("Dimensity 9400"))["NPU platform"].status == "ok"
    console = Console(verbosity=-1)
    check_needs(recipe("mt6993"), console)
    assert ["not validated" in warning.message for warning in console.warnings] == [True]


def test_a_package_that_nobody_validated_is_a_warning_of_the_export(recipe: Recipes, tmp_path: Path) -> None:
    make_python(tmp_path / "python", {**RIGHT, "mtk_neuron": "8.3.0"})
    console = Console(verbosity=-1)
    check_needs(recipe(), console)
    [warning] = console.warnings
    assert warning.code == "neuropilot.not_validated"
    assert "8.3.0" in warning.message


def test_the_stage_refuses_a_calibration_file_that_is_not_there(recipe: Recipes, tmp_path: Path) -> None:
    loaded = recipe(sdk="simulator, calibration: {file: none.txt}")
    with pytest.raises(EtcliError) as caught:
        check_needs(loaded, Console(verbosity=-1))
    assert [problem.code for problem in caught.value.problems] == ["recipe.calibration"]
    assert caught.value.exit == ExitCode.USAGE


def test_other_backends_need_no_tools_of_a_vendors(tmp_path: Path) -> None:
    console = Console(verbosity=-1)
    check_needs(samples.make_recipe(tmp_path), console)
    assert console.warnings == []


def test_the_stage_itself_asks_before_it_fetches(
    recipe: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etcli.export import stage

    monkeypatch.setattr(stage, "backend_for", lambda _: None)
    monkeypatch.setattr(stage, "fetch", lambda *_: pytest.fail("fetched"))
    with pytest.raises(EtcliError) as caught:
        export(recipe(sdk="nowhere"), Workspace(tmp_path / "ws", "a"), ExportOptions(), Console(verbosity=-1))
    assert "neuropilot.missing" in [problem.code for problem in caught.value.problems]
