"""The console script itself: help, version, mistyped verbs, unexpected failures."""

import json
import os
import subprocess
import sys

import pytest

from etcli.cli.catalogue import VERBS


def etcli(*words, env=None, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "etcli", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
        cwd=cwd,
        check=False,
    )


def test_help_names_every_verb():
    done = etcli("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f"  {verb} " in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    done = etcli(verb, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: etcli {verb}")


def test_version_as_json_lists_what_matters():
    done = etcli("--version", "--json")
    result = json.loads(done.stdout)["result"]
    assert result["executorch"] == "1.5.1"
    assert set(result) >= {"etcli", "python", "torch", "adbutils", "cmake"}


def test_a_mistyped_verb_is_exit_2_with_a_suggestion():
    done = etcli("exprot")
    assert done.returncode == 2
    assert "did you mean 'export'" in done.stderr
    assert "Traceback" not in done.stderr


def test_usage_errors_are_a_document_with_json():
    done = etcli("export", "--json", "--jobs", "none")
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 2
    assert document["ok"] is False
    assert document["command"] == "export"
    assert document["errors"][0]["code"] == "usage"


def test_serial_and_device_exclude_each_other():
    done = etcli("run", "--serial", "x", "--device", "virtual")
    assert done.returncode == 2
    assert "exclude each other" in done.stderr


def test_every_flag_has_its_environment_variable():
    done = etcli("export", "--dry-run", env={"ETCLI_EXPORT_JOBS": "none"})
    assert done.returncode == 2
    assert "none" in done.stderr


def test_a_fault_of_ours_is_exit_1_with_a_crash_file(tmp_path, monkeypatch, capsys):
    from etcli.cli import failures

    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    code = failures.report(RuntimeError("boom"), ["export"])
    err = capsys.readouterr().err
    crashes = list((tmp_path / "crashes").iterdir())
    assert code == 1
    assert len(crashes) == 1
    assert "RuntimeError: boom" in crashes[0].read_text()
    assert str(crashes[0]) in err
    assert "Traceback" not in err
