"""`etcli doctor --archive`: what is in it, and that planted secrets, prompts and answers are not."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path

import pytest
import samples
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.common.errors import ToolError
from etcli.common.needs import Need, needed
from etcli.common.workspace import Workspace
from etcli.manifests.run_record import DeviceFacts, RunRecord
from etcli.recipe.loader import load
from etcli.verbs import support_archive
from etcli.verbs.doctor import Diagnosis
from etcli.verbs.support_archive import write_support_archive

TOKEN = "hf_" + "S3cretS3cretS3cret99"
PASSWORD = "-".join(("correct", "horse", "battery"))
PROMPT = "Where did Mrs Miller hide the blue folder?"
ANSWER = "She hid the blue folder in the attic."
SYSTEM = "You work for Miller and Sons."
SERIAL = "R5CT60ZZTOP"
MODEL_DIR = "/secret-customer/weights"


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Workspace]:
    """A workspace with everything that may hold a secret, and a recipe that takes a path from a variable."""
    home = tmp_path / "home" / "jane"
    (home / "work").mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("CORP_PROXY_PASSWORD", PASSWORD)
    monkeypatch.setenv("HTTPS_PROXY", f"http://jane:{PASSWORD}@proxy:3128")
    monkeypatch.setenv("MODEL_DIR", MODEL_DIR)
    monkeypatch.setenv("ETCLI_RUN_PROMPT", PROMPT)
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    recipe = home / "work" / "tiny.yaml"
    recipe.write_text(
        "name: tiny\nmodel: {source: '${MODEL_DIR}/model.gguf'}\n"
        f"run: {{prompt: '{PROMPT}', system: '{SYSTEM}', chat: false}}\n"
    )
    workspace = Workspace(home / "work" / ".etcli", "tiny")
    loaded = samples.make_recipe(tmp_path)
    samples.make_bundle(loaded, workspace, weights=f"weights of {PROMPT}".encode())
    samples.make_build(loaded, workspace)
    logs = workspace.build("host") / "logs"
    logs.mkdir()
    (logs / "build.log").write_text(
        f"fetching https://jane:{PASSWORD}@host/x?token={TOKEN}\nincluding {home}/work/x.h\n{MODEL_DIR}\n"
        + "x" * 400_000
        + "\nundefined reference to foo\n"
    )
    run = workspace.runs / "20260102T030405Z"
    run.mkdir(parents=True)
    facts = DeviceFacts(serial=SERIAL, model="Phone", soc="X", abi="arm64-v8a", os="Android 16", emulated=False)
    RunRecord(
        name="tiny",
        runner="etcli",
        target="host",
        prompt=PROMPT,
        prompt_ids=(1, 2),
        tokens=(3, 4, 5),
        text=ANSWER,
        stop_reason="stop_id",
        prefill_tokens_per_s=1.0,
        decode_tokens_per_s=2.0,
        time_to_first_token_s=0.1,
        load_s=0.1,
        peak_memory_bytes=1,
        threads=1,
        device=facts,
    ).write(run / "record.json")
    (run / "stderr.txt").write_text(f"prompt was {PROMPT}\nanswer is {ANSWER}\nE out of memory\n")
    (run / "events.jsonl").write_text(f'{{"event": "note", "text": "{ANSWER}"}}\n')
    (run / "logcat.txt").write_text("somebody else's notification")
    crashes = tmp_path / "cache" / "crashes"
    crashes.mkdir(parents=True)
    (crashes / "etcli-1.txt").write_text(
        f"etcli run --prompt {PROMPT}\n3.11\n\nTraceback\nKeyError: 'x' in {home}/a.py\n"
    )
    return recipe, workspace


def diagnosis(device: DeviceFacts | None = None) -> Diagnosis:
    problem = ToolError.problem(f"{MODEL_DIR}/model.gguf is missing", code="checkpoint.missing", hint=f"Ask {TOKEN}")
    return Diagnosis(
        "tiny", "host", (Need("python", "runs etcli", "ok", "3.11"), needed("checkpoint", "weights", problem)), device
    )


def read(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_nothing_that_was_planted_leaves_the_machine(scene, tmp_path):
    recipe, workspace = scene
    device = DeviceFacts(serial=SERIAL, model="Phone", soc="X", abi="arm64-v8a", os="Android 16", emulated=False)
    written = write_support_archive(
        tmp_path / "a.zip",
        load(str(recipe)),
        workspace,
        diagnosis(device),
        {"etcli": "0"},
        properties={
            "ro.serialno": SERIAL,
            "ro.soc.model": "MT6991",
            "gsm.sim.operator": "Carrier",
            "ro.build.version.release": "16",
        },
    )
    members = read(tmp_path / "a.zip")
    for planted in (TOKEN, PASSWORD, PROMPT, ANSWER, SYSTEM, SERIAL, MODEL_DIR, "jane", "notification", "Carrier"):
        assert [name for name, text in members.items() if planted in text] == [], planted
    assert set(written.members) == set(members)


def test_what_helps_is_there(scene, tmp_path):
    recipe, workspace = scene
    write_support_archive(
        tmp_path / "a.zip", load(str(recipe)), workspace, diagnosis(), {"etcli": "9.9", "torch": None}
    )
    members = read(tmp_path / "a.zip")
    assert json.loads(members["versions.json"]) == {"etcli": "9.9", "torch": None}
    doctor = json.loads(members["doctor.json"])
    assert [need["status"] for need in doctor["needs"]] == ["ok", "missing"]
    assert doctor["needs"][1]["problem"]["code"] == "checkpoint.missing"
    assert "source: ${MODEL_DIR}/model.gguf" in members["recipe.yaml"]
    assert f"<left out, length {len(PROMPT)}>" in members["recipe.yaml"]
    log = members["build/host/logs/build.log"]
    assert log.endswith("undefined reference to foo\n")
    assert len(log) < 300_000  # its end is where the failure stands
    run = "runs/20260102T030405Z"
    record = json.loads(members[f"{run}/record.json"])
    assert (record["stop_reason"], record["tokens"]) == ("stop_id", "<left out, length 3>")
    assert members[f"{run}/stderr.txt"] == "prompt was <prompt>\nanswer is <text>\nE out of memory\n"
    assert f"{run}/events.jsonl" not in members
    assert members["crashes/etcli-1.txt"].startswith("etcli run (arguments left out)\n3.11\n")
    assert "KeyError" in members["crashes/etcli-1.txt"]
    assert json.loads(members["bundle/manifest.json"])["name"] == "tiny"
    assert "chunks/tiny_0.pte" in members["workspace.txt"]
    machine = json.loads(members["machine.json"])
    assert "ETCLI_RUN_PROMPT" in machine["variables_set_too"]
    assert "HF_TOKEN" in machine["variables_set_too"]
    assert "build/host/logs/build.log" in members["README.txt"]


def test_a_phone_is_told_by_what_it_is_and_not_by_its_number(scene, tmp_path):
    recipe, workspace = scene
    device = DeviceFacts(serial=SERIAL, model="Phone", soc="X", abi="arm64-v8a", os="Android 16", emulated=False)
    properties = {"ro.soc.model": "MT6991", "ro.serialno": SERIAL}
    write_support_archive(
        tmp_path / "a.zip", load(str(recipe)), workspace, diagnosis(device), {}, properties=properties
    )
    told = json.loads(read(tmp_path / "a.zip")["device.json"])
    assert told["properties"] == {"ro.soc.model": "MT6991"}
    assert (told["facts"]["serial"], told["facts"]["model"]) == ("<serial>", "Phone")


def test_links_out_of_the_workspace_are_not_followed(scene, tmp_path):
    recipe, workspace = scene
    (tmp_path / "private.log").write_text("a diary")
    (workspace.build("host") / "logs" / "link.log").symlink_to(tmp_path / "private.log")
    write_support_archive(tmp_path / "a.zip", load(str(recipe)), workspace, diagnosis(), {})
    assert not [name for name, text in read(tmp_path / "a.zip").items() if "a diary" in text]


def test_it_is_for_its_owner_only_and_whole_or_not_there(scene, tmp_path, monkeypatch):
    recipe, workspace = scene
    path = tmp_path / "a.zip"
    write_support_archive(path, load(str(recipe)), workspace, diagnosis(), {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(support_archive.zipfile.ZipFile, "writestr", fails)
    with pytest.raises(OSError, match="disk full"):
        write_support_archive(path, load(str(recipe)), workspace, diagnosis(), {})
    assert path.read_bytes() == before


def test_a_machine_without_a_workspace(scene, tmp_path):
    recipe, _ = scene
    write_support_archive(tmp_path / "a.zip", load(str(recipe)), Workspace(tmp_path / "no", "tiny"), diagnosis(), {})
    members = read(tmp_path / "a.zip")
    assert {"README.txt", "doctor.json", "machine.json", "recipe.yaml", "versions.json", "workspace.txt"} <= set(
        members
    )


def test_the_command_writes_it_although_something_is_missing(scene, tmp_path, monkeypatch):
    recipe, _ = scene
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        cli, ["doctor", str(recipe), "--target", "host", "--archive", "a.zip", "--json"], standalone_mode=False
    )
    assert done.exception is not None  # the checkpoint is missing
    assert done.exception.etcli_result.missing
    assert "doctor.json" in read(tmp_path / "a.zip")
    assert done.exception.etcli_result.archive == Path("a.zip")
