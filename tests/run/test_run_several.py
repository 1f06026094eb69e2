"""`etcli run` on several devices at once, and a conversation at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import samples
from device_fixtures import MakeDevice

from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, deploy
from etcli.device.adb import AdbDevice
from etcli.device.held_link import LINK
from etcli.device.lock import device_lock
from etcli.output.console import Console

RECIPE = "name: tiny\nmodel: {source: model.gguf}\nrun: {prompt: Hello world, chat: false}\n"
ANSWER = samples.script(samples.answer_lines([5, 6, 7, samples.STOP_ID]))

TALKS = r"""#!/bin/sh
echo '{"event": "start", "protocol": 1, "runner": "r", "version": "0", "executorch": "1"}'
echo '{"event": "loaded", "load_s": 0.5, "chunks": 2, "threads": 1, "memory_bytes": 5}'
while read -r kind number ids; do
    [ "$kind" = prompt ] || exit 0
    echo '{"event": "token", "index": 0, "id": 5, "t_s": 0.5}'
    echo '{"event": "token", "index": 1, "id": 2, "t_s": 0.5}'
    printf '{"event": "stats", "stop_reason": "stop_id", "prompt_tokens": 1, "new_tokens": 2, "load_s": 0.5, "prefill_s": 0.1, '
    printf '"decode_s": 0.1, "decode_steps": 1, "prefill_tokens_per_s": 1.0, "decode_tokens_per_s": 1.0, "time_to_first_token_s": 0.1, '
    printf '"peak_memory_bytes": 9, "chunk_seconds": [], "conversation_tokens": %d}\n' $((total += 3))
done
"""


@pytest.fixture
def two(virtual_device: MakeDevice) -> Iterator[list[AdbDevice]]:
    devices = [virtual_device("x86_64"), virtual_device("x86_64", protocol="old")]
    yield devices
    for device in devices:
        device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


def put(folder: Path, device: AdbDevice, runner: str) -> None:
    """A deployed runner, from a folder in which `etcli run` then works."""
    (folder / "etcli.yaml").write_text(RECIPE)
    loaded = samples.make_recipe(folder, run={"prompt": "Hello world", "chat": False})
    workspace = Workspace(folder / ".etcli", "tiny")
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace, runner=runner)
    deploy(loaded, workspace, device, DeployOptions(), Console(verbosity=-1))


def etcli(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etcli", "run", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_each_device_answers_under_its_name(tmp_path: Path, two: list[AdbDevice]) -> None:
    for device in two:
        put(tmp_path, device, ANSWER)
    words = [word for device in two for word in ("--serial", device.serial)]
    document = json.loads(etcli(tmp_path, *words, "--json").stdout)
    answers = document["result"]["devices"]
    assert [answer["device"]["serial"] for answer in answers] == [device.serial for device in two]
    assert {answer["text"] for answer in answers} == {"Tokyo is nice"}
    shown = etcli(tmp_path, *words)
    assert shown.returncode == 0, shown.stderr
    for device in two:
        assert f"{device.serial}  Tokyo is nice" in shown.stdout


def test_one_that_fails_does_not_hide_the_other(tmp_path: Path, two: list[AdbDevice]) -> None:
    for device in two:
        put(
            tmp_path,
            device,
            f"#!/bin/sh\ncase $(getprop ro.serialno) in *-old)\necho broken >&2\nexit 3\nesac\n{ANSWER}",
        )
    done = etcli(tmp_path, *[word for device in two for word in ("--serial", device.serial)], "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (9, False)
    good, bad = document["result"]["devices"]
    assert good["text"] == "Tokyo is nice"
    assert bad["serial"] == two[1].serial
    assert "broken" in bad["errors"][0]["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_is_done(tmp_path: Path, two: list[AdbDevice], number: signal.Signals) -> None:
    slow = samples.script(samples.answer_lines([5, 6])[:-1], after="exec sleep 54321").removeprefix("#!/bin/sh\n")
    for device in two:
        put(tmp_path, device, f"#!/bin/sh\ncase $(getprop ro.serialno) in *-old)\n{slow}\nesac\n{ANSWER}")
    words = [word for device in two for word in ("--serial", device.serial)]
    runs = tmp_path / ".etcli/tiny/runs"
    with subprocess.Popen(
        [sys.executable, "-m", "etcli", "run", *words, "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for _ in range(400):
            told = "".join(path.read_text() for path in runs.glob("*/events.jsonl"))
            if list(runs.glob("*/record.json")) and told.count('"token"') == 4 + 2:
                break
            time.sleep(0.1)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    done, cut = json.loads(out)["result"]["devices"]
    assert (done["text"], done["stop_reason"]) == ("Tokyo is nice", "stop_id")
    assert (cut["tokens"], cut["stop_reason"]) == ([5, 6], "interrupted")
    assert cut["device"]["serial"] == two[1].serial
    records = [json.loads(path.read_text()) for path in runs.glob("*/record.json")]
    assert sorted(record["stop_reason"] for record in records) == ["interrupted", "stop_id"]
    assert "Traceback" not in errors
    assert two[0].stat(LINK) is None
    with device_lock(two[1], "test", Console(verbosity=-1)):  # whatever is left of it holds nobody
        pass


def test_a_conversation_is_of_one_device(tmp_path: Path, two: list[AdbDevice]) -> None:
    put(tmp_path, two[0], TALKS)
    done = etcli(tmp_path, "--interactive", *[word for device in two for word in ("--serial", device.serial)])
    assert done.returncode == 2
    assert "one device" in done.stderr


def test_at_a_terminal(tmp_path: Path, two: list[AdbDevice]) -> None:
    """Prompts, answers as they come, and Ctrl-D at the end."""
    put(tmp_path, two[0], TALKS)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "etcli", "run", "--interactive", "--serial", two[0].serial]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen, at = "", 0

        def until(word: str) -> None:
            nonlocal seen, at
            while (place := seen.find(word, at)) < 0:
                assert select.select([ours], [], [], 60)[0], seen
                seen += os.read(ours, 4096).decode(errors="replace")
            at = place + len(word)

        until("Ctrl-D")
        until("> ")
        os.write(ours, b"Hello\n")
        until("places are taken")
        until("> ")
        os.write(ours, b"\\\n")
        until(". ")
        os.write(ours, b"is\n")
        until("places are taken")
        until("> ")
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    os.close(ours)
    assert seen.count("Tokyo") == 2
