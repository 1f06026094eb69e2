"""What a deployment is refused for before the device is touched, and the choice of the build."""

from __future__ import annotations

import os

import pytest
import samples
from deploy_scene import Scene

from etcli.common.errors import DeployError, ExitCode, StaleError, UsageError


def test_everything_the_build_lacks_is_listed_at_once(scene: Scene) -> None:
    samples.make_build(scene.loaded, scene.workspace, operators=("aten::mul.out",), backends=(), program="ET13")
    with pytest.raises(DeployError) as caught:
        scene.deploy(force=True)
    problems = {problem.code: problem.message for problem in caught.value.problems}
    assert set(problems) == {"deploy.operators_lacking", "deploy.backends_lacking", "deploy.program_version"}
    assert "aten::add.out" in problems["deploy.operators_lacking"]
    assert "XnnpackBackend" in problems["deploy.backends_lacking"]
    assert "ET12" in problems["deploy.program_version"]
    assert "ET13" in problems["deploy.program_version"]
    assert caught.value.exit == ExitCode.DEPLOY
    assert scene.device.commands == []


def needing(scene: Scene, *operators: str) -> None:
    """Make the bundle's first chunk call `operators` too."""
    bundle = samples.make_bundle(scene.loaded, scene.workspace)
    [chunk, *others] = bundle.chunks
    [file, *more] = chunk.files
    methods = tuple(method.model_copy(update={"operators": (*method.operators, *operators)}) for method in file.methods)
    files = (file.model_copy(update={"methods": methods}), *more)
    changed = bundle.model_copy(update={"chunks": (chunk.model_copy(update={"files": files}), *others)})
    changed.write(scene.workspace.bundle / "manifest.json")


def test_a_build_without_the_ring_operators_is_to_be_made_again(scene: Scene) -> None:
    needing(scene, "etcli::ring_attention.out")
    with pytest.raises(DeployError, match=r"lacks: etcli::ring_attention\.out") as caught:
        scene.deploy()
    [problem] = caught.value.problems
    assert problem.hint == (
        "The build is from an etcli that did not have them; "
        f"run: etcli build {scene.loaded.path} --target host --workspace {scene.workspace.root}"
    )
    lacking = samples.make_build(scene.loaded, scene.workspace).operators
    samples.make_build(scene.loaded, scene.workspace, operators=(*lacking, "etcli::ring_attention.out"))
    scene.deploy()


@pytest.mark.known_failure("operators-missing-at-start")
@pytest.mark.parametrize(
    ("operators", "said", "unsaid"),
    [
        (("aqlm::code2x8_lut_matmat.out",), "the recipe asks for aqlm in build.custom_ops", "folder"),
        (("shout::twice.out",), "build.custom_ops lists the folder of the operator library", "aqlm"),
        (
            ("aqlm::code1x8_lut_matmat.out", "shout::twice.out"),
            "precision that brings it and build.custom_ops lists",
            "!",
        ),
    ],
)
def test_a_build_without_the_operators_of_the_bundle_is_refused(
    scene: Scene, operators: tuple[str, ...], said: str, unsaid: str
) -> None:
    needing(scene, *operators)
    with pytest.raises(DeployError) as caught:
        scene.deploy(force=True)
    assert caught.value.exit == ExitCode.DEPLOY
    [problem] = caught.value.problems
    assert problem.code == "deploy.operators_lacking"
    assert ", ".join(operators) in problem.message
    assert said in (problem.hint or "")
    assert unsaid not in (problem.hint or "")
    assert "etcli build" in (problem.hint or "")
    assert scene.device.commands == []
    provided = samples.make_build(scene.loaded, scene.workspace).operators
    samples.make_build(scene.loaded, scene.workspace, operators=(*provided, *operators))
    scene.deploy()


def test_a_target_that_is_none_is_a_matter_of_usage(scene: Scene) -> None:
    with pytest.raises(UsageError, match="no target 'hots'") as caught:
        scene.deploy(target="hots")
    assert caught.value.exit == ExitCode.USAGE
    assert "linux-aarch64" in (caught.value.problems[0].hint or "")
    assert not scene.deploy(target="auto").current


def for_npu(scene: Scene, platform: str, *, simulated: bool = False, simulated_build: bool = False) -> None:
    """Make the bundle one of `platform`, and the build one that has the simulated libraries or not."""
    bundle = samples.make_bundle(scene.loaded, scene.workspace)
    changed = bundle.model_copy(update={"platform": platform, "simulated": simulated})
    changed.write(scene.workspace.bundle / "manifest.json")
    samples.make_build(scene.loaded, scene.workspace, simulated=simulated_build)


@pytest.mark.known_failure("neuron-wrong-soc")
def test_another_platform_is_refused_unless_forced(scene: Scene) -> None:
    scene.device.soc_properties = {"ro.board.platform": "mt6991", "ro.soc.model": "MT6991"}
    for_npu(scene, "mt6989")
    said = r"platform mt6989 \(Dimensity 9300\), local-1 is mt6991 \(ro\.board\.platform\), MT6991 \(ro\.soc\.model\)$"
    with pytest.raises(DeployError, match=said) as caught:
        scene.deploy()
    assert caught.value.exit == ExitCode.DEPLOY
    assert scene.device.pushed == []
    scene.deploy(force=True)
    assert [warning.code for warning in scene.console.warnings] == ["deploy.platform"]
    for_npu(scene, "mt6991")
    scene.deploy()
    assert len(scene.console.warnings) == 1


@pytest.mark.known_failure("neuron-wrong-soc")
def test_a_variant_is_taken_and_said_not_to_be_validated(scene: Scene) -> None:
    for_npu(scene, "mt6991")
    scene.deploy()
    [warning] = scene.console.warnings
    assert warning.code == "deploy.platform_variant"
    assert "MT6991Z" in warning.message
    assert "not validated" in warning.message


@pytest.mark.known_failure("neuron-soc-alias")
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        # An alias of an mt6897, whatever another property says.
        ({"ro.soc.model": "MT8792"}, "local-1 is MT8792 (ro.soc.model)"),
        ({"ro.soc.model": "MT8792", "ro.board.platform": "mt6991"}, "the properties of local-1 contradict one another"),
        ({"ro.soc.model": "SM8750", "ro.board.platform": "sun"}, "local-1 is sun (ro.board.platform), SM8750"),
        ({"ro.hardware": "mt6991"}, None),
        ({"ro.vendor.mediatek.platform": "MT6991", "ro.soc.model": "a name of the vendor's"}, None),
        ({}, "local-1 is of an unknown SoC"),
    ],
)
def test_every_property_that_tells_the_soc_counts(scene: Scene, properties: dict[str, str], said: str | None) -> None:
    scene.device.soc_properties = properties
    for_npu(scene, "mt6991")
    if said is None:
        scene.deploy()
        return
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    [problem] = caught.value.problems
    assert problem.code == "deploy.platform"
    assert said in problem.message


def test_a_simulated_bundle_runs_wherever_the_simulated_libraries_do(scene: Scene) -> None:
    scene.device.soc_properties = {}
    for_npu(scene, "mt6989", simulated=True, simulated_build=True)
    scene.deploy()
    [warning] = scene.console.warnings
    assert warning.code == "neuron.simulated"
    assert "simulated" in warning.message


@pytest.mark.parametrize(
    ("simulated", "said"), [(True, "the simulated NPU, the build"), (False, "MediaTek's NPU, the build")]
)
def test_simulated_and_real_are_never_taken_for_one_another(scene: Scene, simulated: bool, said: str) -> None:
    for_npu(scene, "mt6991", simulated=simulated, simulated_build=not simulated)
    with pytest.raises(DeployError, match=said) as caught:
        scene.deploy(force=True)
    [problem] = caught.value.problems
    assert problem.code == "deploy.simulated"
    assert "etcli build" in (problem.hint or "")
    assert scene.device.pushed == []


def test_missing_bundle_and_build_name_the_command(scene: Scene) -> None:
    (scene.workspace.build("host") / "manifest.json").unlink()
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    hint = caught.value.problems[0].hint
    assert hint == f"Run: etcli build {scene.loaded.path} --target host --workspace {scene.workspace.root}"
    (scene.workspace.bundle / "manifest.json").unlink()
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert caught.value.problems[0].hint == f"Run: etcli export {scene.loaded.path} --workspace {scene.workspace.root}"
    assert caught.value.exit == ExitCode.USAGE


def test_command_leaves_out_the_default_workspace(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCLI_WORKSPACE", str(scene.workspace.root))
    (scene.workspace.bundle / "manifest.json").unlink()
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert caught.value.problems[0].hint == f"Run: etcli export {scene.loaded.path}"


def test_outdated_bundle_is_refused_unless_stale_ok(scene: Scene) -> None:
    scene.loaded = samples.make_recipe(scene.loaded.base, export={"chunks": 2})
    samples.make_build(scene.loaded, scene.workspace)
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "bundle.outdated"
    scene.deploy(stale_ok=True)
    assert [warning.code for warning in scene.console.warnings] == ["bundle.outdated"]


def test_outdated_build_is_refused_unless_stale_ok(scene: Scene) -> None:
    scene.loaded = samples.make_recipe(scene.loaded.base, build={"openmp": "static"})
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "build.outdated"
    assert "--target host" in (caught.value.problems[0].hint or "")
    scene.deploy(stale_ok=True)
    assert [warning.code for warning in scene.console.warnings] == ["build.outdated"]


def test_target_that_does_not_fit_the_device_is_refused(scene: Scene) -> None:
    samples.make_build(scene.loaded, scene.workspace, target="linux-aarch64")
    assert scene.deploy().target == "host"
    with pytest.raises(DeployError, match=r"linux-aarch64 does not fit local-1 \(x86_64\): it runs host"):
        scene.deploy(target="linux-aarch64")
    assert scene.deploy(target="linux-aarch64", force=True).target == "linux-aarch64"


def test_newest_of_several_fitting_builds_is_taken(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcli.device.builds.fitting_targets", lambda _: ["host", "linux-aarch64"])
    samples.make_build(scene.loaded, scene.workspace, target="linux-aarch64")
    for target, age in (("host", 1_000_000_000), ("linux-aarch64", 2_000_000_000)):
        os.utime(scene.workspace.build(target) / "manifest.json", (age, age))
    assert scene.deploy().target == "linux-aarch64"
    os.utime(scene.workspace.build("host") / "manifest.json", (2_100_000_000, 2_100_000_000))
    assert scene.deploy().target == "host"


@pytest.mark.known_failure("android-function-of-a-later-api")
@pytest.mark.parametrize(
    ("device", "build", "advice"),
    [
        ("26", 28, "--target android --set build.api_level=26"),
        ("24", 26, "Runners are built for API level 26 and above"),
        ("28", 28, None),
        ("35", 28, None),
        ("unknown", 28, None),
    ],
)
def test_a_build_for_a_later_android_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, device: str, build: int, advice: str | None
) -> None:
    monkeypatch.setattr("etcli.device.builds.fitting_targets", lambda _: ["android"])
    samples.make_build(scene.loaded, scene.workspace, target="android", api_level=build)
    scene.device.soc_properties["ro.build.version.sdk"] = device
    if advice is not None:
        with pytest.raises(DeployError, match=f"for Android API level {build}, local-1 has {device}$") as caught:
            scene.deploy()
        [problem] = caught.value.problems
        assert (problem.code, caught.value.exit) == ("deploy.api_level", ExitCode.DEPLOY)
        assert advice in (problem.hint or "")
        assert scene.device.pushed == []
    assert scene.deploy(force=advice is not None).target == "android"
    assert [warning.code for warning in scene.console.warnings] == (["deploy.api_level"] if advice else [])


def test_bundle_from_elsewhere(scene: Scene) -> None:
    elsewhere = scene.loaded.base / "unpacked"
    scene.workspace.bundle.rename(elsewhere)
    assert scene.deploy(bundle=elsewhere).sent_files == 9
