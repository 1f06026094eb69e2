"""What a run is refused for before the device loads anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import samples
from deploy_scene import Scene

from etcli.common.errors import CheckpointError, DeployError, StaleError, UsageError
from etcli.manifests.run_record import RunRecord
from etcli.run.stage import RunOptions, run

RunScript = Callable[..., RunRecord]
GOOD = samples.script(samples.answer_lines([samples.STOP_ID]))


def call(scene: Scene, **options: object) -> RunRecord:
    return run(scene.loaded, scene.workspace, scene.device, RunOptions(**options), scene.console)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [samples.CACHE, samples.CACHE + 5])
def test_prompt_that_fills_the_cache(run_script: RunScript, scene: Scene, words: int) -> None:
    with pytest.raises(UsageError) as caught:
        run_script(GOOD, prompt=" ".join(["Hello"] * words))
    problem = caught.value.problems[0]
    assert problem.code == "run.prompt_too_long"
    assert f"{words} tokens" in problem.message
    assert f"holds {samples.CACHE}" in problem.message
    assert not scene.workspace.runs.exists()


def test_longest_prompt_that_fits(run_script: RunScript) -> None:
    prompt = " ".join(["Hello"] * (samples.CACHE - 1))
    lines = samples.answer_lines([samples.STOP_ID], prompt_tokens=samples.CACHE - 1)
    assert len(run_script(samples.script(lines), prompt=prompt).prompt_ids) == samples.CACHE - 1


@pytest.mark.parametrize("options", [{"prompt": "x" * 100_000}, {"chat": True, "system": "x" * 100_000}])
def test_words_far_beyond_the_cache_are_not_even_encoded(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    monkeypatch.setattr("etcli.run.prompt.encode_prompt", lambda *_, **__: pytest.fail("it takes minutes"))
    with pytest.raises(UsageError, match="characters; the cache holds") as caught:
        run_script(GOOD, **options)
    assert caught.value.problems[0].code == "run.prompt_too_long"


def test_empty_prompt(run_script: RunScript) -> None:
    with pytest.raises(UsageError) as caught:
        run_script(GOOD, prompt="")
    assert caught.value.problems[0].code == "run.prompt_empty"


@pytest.mark.known_failure("tokenizer-larger-than-embedding")
def test_tokenizer_that_is_not_the_models(run_script: RunScript, scene: Scene) -> None:
    path = scene.workspace.bundle / "manifest.json"
    bundle = samples.make_bundle(scene.loaded, scene.workspace)
    bundle.model_copy(update={"model": bundle.model.model_copy(update={"vocab_size": 4})}).write(path)
    with pytest.raises(CheckpointError, match="the tokenizer gives id 4, the model has 4 ids"):
        run_script(GOOD)


def test_chat_without_a_template(run_script: RunScript) -> None:
    with pytest.raises(CheckpointError) as caught:
        run_script(GOOD, chat=True)
    assert caught.value.problems[0].code == "tokenizer.no_chat_template"


def test_nothing_deployed_names_the_command(scene: Scene) -> None:
    samples.make_build(scene.loaded, scene.workspace)
    for stale_ok in (False, True):
        with pytest.raises(StaleError) as caught:
            call(scene, stale_ok=stale_ok)
        problem = caught.value.problems[0]
        assert problem.code == "deploy.missing"
        assert (
            problem.hint == f"Run: etcli deploy {scene.loaded.path} --serial local-1 --workspace {scene.workspace.root}"
        )


def test_outdated_deployment_is_refused_unless_stale_ok(run_script: RunScript, scene: Scene) -> None:
    run_script(GOOD)
    samples.make_build(scene.loaded, scene.workspace, runner=GOOD, cmake="9.9")
    with pytest.raises(StaleError, match="the device holds another build") as caught:
        call(scene)
    assert caught.value.problems[0].code == "deploy.outdated"
    assert call(scene, stale_ok=True).tokens == (samples.STOP_ID,)
    samples.make_build(scene.loaded, scene.workspace, runner=GOOD)
    samples.make_bundle(scene.loaded, scene.workspace, weights=b"new")
    with pytest.raises(StaleError, match="the device holds another bundle"):
        call(scene)


@pytest.mark.parametrize(
    ("options", "idle"),
    [
        ({"seed": 5}, "--seed changes nothing"),
        ({"seed": 5, "top_p": 0.5}, "--top-p and --seed change nothing"),
        ({"seed": 5, "temperature": 0.7}, None),
        ({}, None),
    ],
)
def test_a_seed_without_a_temperature_is_remarked_on(
    run_script: RunScript, scene: Scene, options: dict[str, float], idle: str | None
) -> None:
    run_script(GOOD, **options)
    said = [warning.message for warning in scene.console.warnings if warning.code == "run.greedy"]
    assert [message.split(":")[0] for message in said] == ([idle] if idle else [])


@pytest.mark.known_failure("device-file-changed-since")
def test_files_changed_on_the_device_are_not_run(run_script: RunScript, scene: Scene) -> None:
    run_script(GOOD)
    program, manifest = scene.folder / "bin" / "etcli_llama_runner", scene.folder / "bundle" / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content.replace(b"0", b"1"))
    os.utime(manifest, (1_600_000_000, 1_600_000_000))
    with pytest.raises(StaleError) as caught:
        call(scene)
    problem = caught.value.problems[0]
    assert (problem.code, "bundle/manifest.json was changed" in problem.message) == ("deploy.changed", True)
    assert problem.hint is not None
    assert problem.hint.startswith(
        f"Run: etcli deploy {scene.loaded.path} --serial local-1 --workspace {scene.workspace.root}"
    )
    assert call(scene, stale_ok=True).tokens == (samples.STOP_ID,)
    program.unlink()
    with pytest.raises(StaleError, match=r"bin/etcli_llama_runner is gone, bundle/manifest\.json was changed"):
        call(scene)


def test_interrupted_deployment_is_not_run(run_script: RunScript, scene: Scene) -> None:
    run_script(GOOD)
    (scene.folder / ".etcli-manifest.json").unlink()
    with pytest.raises(StaleError, match="a deployment was interrupted"):
        call(scene)


def test_missing_stages_name_their_commands(run_script: RunScript, scene: Scene) -> None:
    run_script(GOOD)
    (scene.workspace.build("host") / "manifest.json").unlink()
    with pytest.raises(StaleError, match="there is no build"):
        call(scene)
    (scene.workspace.bundle / "manifest.json").unlink()
    with pytest.raises(StaleError, match="there is no bundle"):
        call(scene)


def test_another_platform_is_refused_unless_forced(run_script: RunScript, scene: Scene) -> None:
    bundle = samples.make_bundle(scene.loaded, scene.workspace)
    bundle.model_copy(update={"platform": "mt6989"}).write(scene.workspace.bundle / "manifest.json")
    samples.make_build(scene.loaded, scene.workspace, runner=GOOD)
    scene.deploy(force=True)
    with pytest.raises(DeployError) as caught:
        call(scene)
    assert caught.value.problems[0].code == "deploy.platform"
    assert call(scene, force=True).tokens == (samples.STOP_ID,)


def test_runner_binary_must_be_a_program_of_the_device(run_script: RunScript, scene: Scene, tmp_path: Path) -> None:
    run_script(GOOD)
    script = tmp_path / "script.sh"
    script.write_text(GOOD)
    with pytest.raises(UsageError) as caught:
        call(scene, runner_binary=script)
    assert caught.value.problems[0].code == "elf.invalid"
    foreign = tmp_path / "foreign"
    content = bytearray(Path(shutil.which("true") or "/bin/true").read_bytes())
    content[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    foreign.write_bytes(content)
    with pytest.raises(UsageError, match="is for EM_AARCH64, the device needs EM_X86_64"):
        call(scene, runner_binary=foreign)


def test_runner_binary_is_sent_once_and_used(run_script: RunScript, scene: Scene) -> None:
    run_script(GOOD)
    binary = Path(shutil.which("true") or "/bin/true")
    for pushed in (1, 0):
        scene.device.pushed.clear()
        with pytest.raises(Exception, match="without a result"):
            call(scene, runner_binary=binary)
        assert scene.device.pushed == ["/data/local/tmp/etcli/tiny/.etcli-runner"] * pushed
    assert ("/data/local/tmp/etcli/tiny/.etcli-runner", "--config") in [c[:2] for c in scene.device.commands]


def test_a_bundle_without_its_tokenizer_is_damaged(run_script: RunScript, scene: Scene) -> None:
    (path,) = (scene.workspace.bundle / "tokenizer").glob("tokenizer.json")
    path.unlink()
    with pytest.raises(StaleError) as caught:
        run_script(GOOD)
    problem = caught.value.problems[0]
    assert (problem.code, problem.file) == ("bundle.damaged", path)
    assert "etcli export" in (problem.hint or "")
