"""The console script itself: help, version, mistyped verbs, unexpected failures."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from etcli.cli import main
from etcli.cli.catalogue import VERBS
from etcli.common.errors import Problem


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


def leaves(command, words):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), (*words, name))
    else:
        yield words, command


def test_every_flag_has_an_environment_variable_of_its_own_name():
    # click makes ETCLI_<COMMAND>_<PARAMETER>; docs/cli.md promises ETCLI_<VERB>_<FLAG>
    found = dict(leaves(main.cli, ()))
    assert ("bundle", "pack") in found
    for words, command in found.items():
        for option in command.params:
            flag = next((name for name in option.opts if name.startswith("--")), None)
            if flag is not None:
                assert option.name == flag.removeprefix("--").replace("-", "_"), (words, flag)


@pytest.mark.parametrize(
    "words",
    [("validate", "none.yaml"), ("validate", "--nothing"), ("device", "info", "-s", "x", "--device", "virtual")],
)
def test_json_may_be_asked_for_by_the_environment(words, tmp_path):
    name = "ETCLI_DEVICE_INFO_JSON" if words[0] == "device" else "ETCLI_VALIDATE_JSON"
    done = etcli(*words, env={name: "1"}, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 2
    assert document["errors"]
    assert done.stderr == ""


def test_a_flag_of_another_option_does_not_ask_for_json(tmp_path):
    done = etcli("run", "none.yaml", "--prompt", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "none.yaml" in done.stderr


def test_json_without_a_verb_is_no_help_page():
    done = etcli("--json")
    assert done.returncode == json.loads(done.stdout)["exit"] == 2


def test_a_pinned_version_in_the_environment_is_no_flag():
    done = etcli("recipe", "list", env={"ETCLI_VERSION": "0.1.0", "ETCLI_AS_JSON": "x"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_termination_signal_takes_the_way_out_of_ctrl_c(name):
    code = (
        "import os, signal, time; from etcli.cli import main\n"
        f"main.cli.main = lambda **_: (os.kill(os.getpid(), signal.{name}), time.sleep(30))\n"
        "main.main(['validate'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 130
    assert done.stderr == "error: interrupted\n"


def test_an_interrupted_smoke_shows_in_json_how_far_it_came(tmp_path):
    code = (
        "import os, signal, time; from etcli.cli import main; from etcli.verbs import smoke\n"
        "smoke.select_device = lambda **_: (os.kill(os.getpid(), signal.SIGINT), time.sleep(30))\n"
        "main.main(['smoke', 'smollm2-135m', '--json'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 130
    assert document["errors"][0]["code"] == "interrupted"
    stages = document["result"]["stages"]
    assert [stage["outcome"] for stage in stages] == ["failed", *["skipped"] * 5]


@pytest.mark.parametrize(
    "words", ["recipe list", "recipe list --json", "validate none", "validate none --json", "--help", "--version"]
)
def test_an_output_that_cannot_be_written_or_was_closed_is_no_fault(words, tmp_path):
    argv = f"{shlex.quote(sys.executable)} -m etcli {words}"
    well = 2 if "none" in words else 0

    def shell(tail):
        return subprocess.run(["sh", "-c", argv + tail], capture_output=True, text=True, cwd=tmp_path, check=False)

    closed = shell(" >&-")
    assert (closed.returncode, closed.stdout) == (well, "")
    assert "Traceback" not in closed.stderr
    assert shell(" 2>&-").returncode == well
    assert shell(" >&- 2>&-").returncode == well
    full = shell(" >/dev/full")
    assert full.returncode == (2 if words == "validate none" else 3)  # a message on stderr does not need stdout
    assert "Traceback" not in full.stderr
    assert full.stderr.count("error:") == 1


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("ENOSPC", "No space left"),
        ("EROFS", "Read-only"),
        ("EACCES", "Permission denied"),
        ("EMFILE", "Too many open files"),
    ],
)
def test_what_the_machine_refuses_is_no_fault_of_ours(number, words, tmp_path):
    code = (
        "import errno, os; from etcli.cli import main\n"
        f"def fail(**_): raise OSError(errno.{number}, os.strerror(errno.{number}), '/some/place')\n"
        "main.cli.main = fail\n"
        "main.main(['validate', '--json'])"
    )
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "ETCLI_CACHE_DIR": str(cache)},
        check=False,
    )
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"] == 3
    (problem,) = document["errors"]
    assert words in problem["message"]
    assert problem["file"] == "/some/place"
    assert problem["hint"]
    assert not cache.exists()  # no crash file


@pytest.mark.parametrize("verb", ["device", "recipe", "bundle"])
def test_a_verb_of_several_alone_shows_its_help(verb):
    done = etcli(verb)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: etcli {verb}")
    assert "..." not in done.stdout.split("Commands:")[1]


@pytest.mark.parametrize(
    ("message", "file", "line", "shown"),
    [
        ("etcli.yaml exists", "etcli.yaml", None, "error: etcli.yaml exists\n"),
        ("cannot read /a/b: no", "/a/b", None, "error: cannot read /a/b: no\n"),
        ("cannot read /a/b/c: no", "/a/b", None, "error: /a/b: cannot read /a/b/c: no\n"),
        ("\x1b[2Jx is missing", "file", None, "error: file: \\x1b[2Jx is missing\n"),
        ("the file is damaged", "file", None, "error: file: the file is damaged\n"),
        ("x.yaml is not valid", "x.yaml", 3, "error: x.yaml:3: x.yaml is not valid\n"),
    ],
)
def test_a_path_is_said_once(capsys, message, file, line, shown):
    from etcli.cli import failures

    failures.show(Problem("x.y", message, file=Path(file), line=line))
    assert capsys.readouterr().err == shown


def test_a_required_value_is_not_said_to_have_a_default():
    done = etcli("validate", "--set", "model.source=")
    assert done.returncode == 2
    assert "required" in done.stderr
    assert "default, or" not in done.stderr


def test_a_folder_without_a_recipe_is_said_to_be_about_the_default(tmp_path):
    words = ("deploy", "--serial", "none-of-that-name")  # the bundle is missed before the device
    remark = "No RECIPE was given and there is no etcli.yaml here: this is about the built-in smollm2-135m."
    nameless = etcli(*words, cwd=tmp_path)
    assert nameless.returncode == 2
    assert "there is no bundle" in nameless.stderr
    assert remark in nameless.stderr
    assert remark not in etcli("deploy", "smollm2-135m", *words[1:], cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--prompt", "x", "run"), "etcli run --prompt"),
        (("--interactive",), "etcli run --interactive"),
        (("--set", "a.b=c", "build"), "etcli build --set"),
        (("--arch", "aarch64", "device", "start"), "etcli device start --arch"),
    ],
)
def test_an_option_before_its_verb_is_told_where_it_goes(words, told):
    done = etcli(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: {told.split()[-1]} is an option of a verb; write it after the verb: {told}"
    ]


def test_an_option_of_no_verb_is_not_said_to_be_of_one():
    done = etcli("--prommpt", "x", "run")
    assert done.returncode == 2
    assert "--prommpt" in done.stderr
    assert "Try: etcli --help" in done.stderr
