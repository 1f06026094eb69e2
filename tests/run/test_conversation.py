"""Conversations with a stand-in runner on virtual devices of both protocols: turns, refusals, and every way in which they end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import samples
from device_fixtures import MakeDevice

from etcli.common.errors import ExitCode, InterruptedByUser, RunError, UsageError
from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, deploy
from etcli.device.adb import AdbDevice
from etcli.manifests.run_record import ConversationRecord
from etcli.output.console import Console
from etcli.run.conversation import converse
from etcli.run.stage import RunOptions

# Answers "Tokyo" and the stop id to everything, but: "nice" (id 7) it says over and over until it is asked to stop, at "." (id 8) it hears
# nothing more, "capital" (id 9) kills it.
RUNNER = r"""#!/bin/sh
log=/data/local/tmp/etcli/requests
echo 'words on stderr' >&2
printf '{"event": "start", "protocol": 1, "runner": "r", "version": "0", "executorch": "1", "pid": %d}\n' $$
echo '{"event": "loaded", "load_s": 0.5, "chunks": 2, "threads": 1, "memory_bytes": 5}'
total=0
token() { printf '{"event": "token", "index": %d, "id": %d, "t_s": 0.5}\n' "$1" "$2"; }
stats() {
    printf '{"event": "stats", "stop_reason": "%s", "prompt_tokens": %d, "new_tokens": %d, "load_s": 0.5, "prefill_s": 0.1, ' "$1" "$2" "$3"
    printf '"decode_s": 0.1, "decode_steps": 1, "prefill_tokens_per_s": 1.0, "decode_tokens_per_s": 1.0, "time_to_first_token_s": 0.1, '
    printf '"peak_memory_bytes": 9, "chunk_seconds": [0.1, 0.1], "conversation_tokens": %d}\n' "$4"
}
while read -r kind number ids; do
    echo "$kind $number $ids" >> $log
    case $kind in
        quit) exit 0 ;;
        keep) total=$number; printf '{"event": "kept", "tokens": %d}\n' "$total" ;;
        prompt)
            count=$(printf '%s\n' "$ids" | tr , '\n' | grep -c .)
            total=$((total + count))
            printf '{"event": "prefill", "tokens": %d, "calls": 1, "seconds": 0.1}\n' "$count"
            token 0 5
            case ,$ids, in
                *,7,*) read -r stop; [ "$stop" = stop ] || exit 9; total=$((total + 1)); stats stopped "$count" 1 "$total" ;;
                *,8,*) exec sleep 98765 ;;
                *,9,*) kill -KILL $$ ;;
                *) token 1 2; total=$((total + 2)); stats stop_id "$count" 2 "$total" ;;
            esac ;;
    esac
done
"""
REQUESTS = "/data/local/tmp/etcli/requests"


class Words:
    """Words given beforehand; `by_hand` as of a person."""

    def __init__(self, *words: str, by_hand: bool = False) -> None:
        self.by_hand = by_hand
        self._words = iter(words)

    def next(self) -> str | None:
        return next(self._words, None)


@pytest.fixture(params=["new", "old"])
def device(virtual_device: MakeDevice, request: pytest.FixtureRequest) -> Iterator[AdbDevice]:
    device = virtual_device("x86_64", protocol=request.param)
    yield device
    device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


class Talk:
    """A deployed stand-in and the console that one talks at."""

    def __init__(self, folder: Path, device: AdbDevice) -> None:
        self.folder, self.device = folder, device
        self.console = Console(verbosity=0)
        self.workspace = Workspace(folder / "work", "tiny")

    def __call__(self, *words: str, by_hand: bool = False, timeout_s: float | None = None) -> ConversationRecord:
        run = {"prompt": "unused", "chat": False, "timeout_s": timeout_s}
        loaded = samples.make_recipe(self.folder, run=run)
        samples.make_bundle(loaded, self.workspace)
        samples.make_build(loaded, self.workspace, runner=RUNNER)
        deploy(loaded, self.workspace, self.device, DeployOptions(), Console(verbosity=-1))
        source = Words(*words, by_hand=by_hand)
        return converse(loaded, self.workspace, self.device, RunOptions(), source, self.console)

    @property
    def requests(self) -> list[str]:
        return [line.strip() for line in self.device.shell(["cat", REQUESTS]).stdout.splitlines()]

    @property
    def kept(self) -> ConversationRecord:
        (folder,) = self.workspace.runs.iterdir()
        return ConversationRecord.read(folder / "record.json")

    def ended(self) -> bool:
        """Whether no runner is left on the device a few seconds later."""
        look = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"
        for _ in range(150):
            if not any(
                "98765" in line or ("bin/etcli_llama_runner" in line and "exec" not in line)
                for line in self.device.shell(["sh", "-c", look]).stdout.splitlines()
            ):
                return True
            time.sleep(0.1)
        return False


@pytest.fixture
def talk(tmp_path: Path, device: AdbDevice) -> Talk:
    return Talk(tmp_path, device)


def interrupting(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Press Ctrl-C once when the first text is shown; returns where notes and text go."""
    shown: list[str] = []

    def write(text: str) -> None:
        shown.append(text)
        if len(shown) == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    monkeypatch.setattr(talk.console, "write", write)
    return shown


def test_what_was_said_stays(capfd: pytest.CaptureFixture[str], talk: Talk) -> None:
    talk.console = Console()  # which speaks to what is captured here
    record = talk("Hello world", "is", "Hello")
    assert talk.requests == ["prompt 64 3,4", "prompt 64 6", "prompt 64 3", "quit"]
    assert [turn.prompt for turn in record.turns] == ["Hello world", "is", "Hello"]
    assert [turn.prompt_ids for turn in record.turns] == [(3, 4), (3, 4, 5, 2, 6), (3, 4, 5, 2, 6, 5, 2, 3)]
    assert [turn.cached_tokens for turn in record.turns] == [0, 4, 7]
    assert {turn.tokens for turn in record.turns} == {(5, 2)}
    assert {turn.stop_reason for turn in record.turns} == {"stop_id"}
    assert talk.kept == record
    (folder,) = talk.workspace.runs.iterdir()
    assert (folder / "stderr.txt").read_text() == "words on stderr\n"
    out, err = capfd.readouterr()
    assert out == "Tokyo\n" * 3
    assert "10 of the cache's 16 places are taken" in err
    assert talk.ended()


def test_a_new_conversation(talk: Talk) -> None:
    record = talk("Hello world", "/new", "is", "/new", "is Tokyo")
    assert talk.requests == ["prompt 64 3,4", "keep 0", "prompt 64 6", "keep 1", "prompt 64 5", "quit"]
    assert [turn.prompt_ids for turn in record.turns] == [(3, 4), (6,), (6, 5)]
    assert [turn.cached_tokens for turn in record.turns] == [0, 0, 1], "what is the same stays"


def test_commands_before_and_after_words(capfd: pytest.CaptureFixture[str], talk: Talk) -> None:
    talk.console = Console()  # which speaks to what is captured here
    record = talk("/new", " /new ", "Hello", "/quit", "is")
    assert [turn.prompt for turn in record.turns] == ["Hello"]
    assert talk("/quit", "Hello").turns == ()
    capfd.readouterr()
    record = talk("/help", "/", "/retry", "/new", "Hello", " /is", "/bye", "is", by_hand=True)
    assert [turn.prompt for turn in record.turns] == ["Hello", " /is"]
    shown = capfd.readouterr().err
    assert "/quit or Ctrl-D ends it" in shown
    assert "there is no /retry; with a space before it, it is said" in shown


@pytest.mark.known_failure("run-prompt-beyond-cache")
def test_words_beyond_the_cache_are_refused(capfd: pytest.CaptureFixture[str], talk: Talk) -> None:
    talk.console = Console()  # which speaks to what is captured here
    with pytest.raises(UsageError) as first:
        talk("Hello " * 16)
    assert first.value.problems[0].code == "run.prompt_too_long"
    assert talk.requests == []
    with pytest.raises(UsageError) as later:
        talk("Hello", "Hello " * 13)
    assert later.value.problems[0].code == "run.conversation_too_long"
    assert "has 16 tokens; the cache holds 16" in later.value.problems[0].message
    assert len(talk.kept.turns) == 1
    capfd.readouterr()
    record = talk("Hello", "Hello " * 13, "is", by_hand=True)
    assert [turn.prompt for turn in record.turns] == ["Hello", "is"]
    assert "the conversation has 16 tokens" in capfd.readouterr().err


def test_interrupt_by_hand_ends_the_answer_alone(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(talk, monkeypatch)
    record = talk("nice", "is", by_hand=True)
    assert [turn.stop_reason for turn in record.turns] == ["interrupted", "stop_id"]
    assert record.turns[0].tokens == (5,)
    assert record.turns[1].prompt_ids == (7, 5, 6)


def test_interrupt_ends_a_conversation_from_a_file(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(talk, monkeypatch)
    with pytest.raises(InterruptedByUser) as caught:
        talk(".", "is")
    assert caught.value.exit == ExitCode.INTERRUPTED
    assert talk.kept.turns == ()
    assert talk.ended()


def test_an_answer_that_takes_too_long_is_stopped(talk: Talk) -> None:
    record = talk("nice", "is", timeout_s=3)
    assert [turn.stop_reason for turn in record.turns] == ["timeout", "stop_id"]
    assert [warning.code for warning in talk.console.warnings] == ["run.timeout"]


def test_a_runner_that_hears_nothing_is_ended(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcli.run.conversation.STOP_SECONDS", 1.0)
    with pytest.raises(RunError) as caught:
        talk("Hello", ".", timeout_s=3)
    assert caught.value.problems[0].code == "run.timeout"
    assert len(talk.kept.turns) == 1
    assert talk.ended()


def test_a_runner_that_dies_is_explained(talk: Talk) -> None:
    with pytest.raises(RunError) as caught:
        talk("Hello", "capital", "is")
    problem = caught.value.problems[0]
    assert problem.code == "run.sigkill"
    assert "words on stderr" in problem.message
    assert caught.value.etcli_result == talk.kept  # type: ignore[attr-defined] # what --json shows
    assert len(talk.kept.turns) == 1


def test_nothing_to_say(talk: Talk) -> None:
    assert talk().turns == ()
    assert talk.requests == []
