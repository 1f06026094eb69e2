"""A conversation over stdin: what is said over turns is what transformers says to the whole of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Event = dict[str, Any]


class Talk:
    """A runner that is asked over stdin."""

    def __init__(self, program: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [program, "--interactive", *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def until(self, *names: str) -> list[Event]:
        assert self.process.stdout is not None
        events = []
        for line in self.process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] in names:
                return events
        raise AssertionError(f"the program ended: {events[-3:]}")

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def turn(self, ids: list[int], most: int = 4) -> tuple[list[int], Event]:
        self.say(f"prompt {most} {','.join(map(str, ids))}")
        events = self.until("stats", "error")
        return [event["id"] for event in events if event["event"] == "token"], events[-1]


@pytest.fixture
def talk(native_build: Path) -> Iterator[Callable[..., Talk]]:
    started = []

    def start(*arguments: object) -> Talk:
        started.append(Talk(native_build / "runner" / "etcli_llama_runner", *arguments))
        assert [event["event"] for event in started[-1].until("loaded", "error")] == ["start", "loaded"]
        return started[-1]

    yield start
    for one in started:
        with one.process:  # closes its pipes and waits
            one.process.kill()


KINDS = {"shift": {}, "ring": {"cache": "ring", "shapes": (12, 8, 3)}}


@pytest.mark.parametrize("kind", KINDS)
def test_turns_go_on_in_the_same_caches(tiny_bundle, talk, kind: str) -> None:
    bundle = tiny_bundle(**KINDS[kind])
    runner = talk("--config", bundle.config, "--ignore-stop-ids")
    whole: list[int] = []
    for ids in ([5, 6, 7], [8], [9, 10, 11, 12]):
        whole += ids
        tokens, stats = runner.turn(ids)
        assert tokens == bundle.greedy(whole, 4)
        whole += tokens
        assert (stats["prompt_tokens"], stats["new_tokens"], stats["conversation_tokens"]) == (len(ids), 4, len(whole))
    # what the caches cannot hold is refused, and nothing is forgotten
    runner.say("prompt 4 " + ",".join(["3"] * 20))
    (refused,) = runner.until("refused")
    assert refused["code"] == "runner.prompt"
    assert "of which 20 are taken" in refused["message"]
    assert runner.turn([3], 1)[0] == bundle.greedy([*whole, 3], 1)
    runner.say("quit")
    assert runner.process.wait(30) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_conversation_can_be_forgotten(tiny_bundle, talk, kind: str) -> None:
    bundle = tiny_bundle(**KINDS[kind])
    runner = talk("--config", bundle.config, "--ignore-stop-ids")
    first, _ = runner.turn([5, 6, 7])
    runner.say("keep 7")
    assert runner.until("kept")[-1]["tokens"] == 7
    runner.say("keep 6")  # the last token said, which the caches do not hold yet
    assert runner.until("kept")[-1]["tokens"] == 6
    assert runner.turn([9])[0] == bundle.greedy([5, 6, 7, *first[:3], 9], 4)
    runner.say("keep 2")
    kept = runner.until("kept")[-1]["tokens"]
    assert kept == {"shift": 0, "ring": 2}[kind]
    assert runner.turn([5, 6, 11, 12][kept:])[0] == bundle.greedy([5, 6, 11, 12], 4)
    runner.say("keep 0")
    assert runner.until("kept")[-1]["tokens"] == 0
    assert runner.turn([5, 6, 7])[0] == first
    assert runner.process.stdin is not None
    runner.process.stdin.close()
    assert runner.process.wait(30) == 0


def test_an_answer_can_be_stopped_and_gone_on_from(tiny_bundle, talk) -> None:
    bundle = tiny_bundle()
    runner = talk("--config", bundle.config, "--ignore-stop-ids")
    runner.say("prompt 20 5,6,7\nstop")  # both are there before the prompt's first call
    stats = runner.until("stats")[-1]
    assert (stats["stop_reason"], stats["new_tokens"], stats["conversation_tokens"]) == ("stopped", 0, 0)
    runner.say("stop")  # too late for anything: no answer to it
    tokens, stats = runner.turn([5, 6, 7])
    assert tokens == bundle.greedy([5, 6, 7], 4)


def test_drawing_goes_on_over_turns_and_begins_anew_with_the_conversation(tiny_bundle, talk) -> None:
    settings = ("--config", tiny_bundle().config, "--ignore-stop-ids", "--temperature", "1.5", "--seed", "9")
    runner = talk(*settings)
    said = [runner.turn([5, 6])[0], runner.turn([7])[0]]
    runner.say("keep 0")
    runner.until("kept")
    assert [runner.turn([5, 6])[0], runner.turn([7])[0]] == said
    other = talk(*settings)
    assert [other.turn([5, 6])[0], other.turn([7])[0]] == said


def test_what_is_no_request_ends_the_program(tiny_bundle, talk) -> None:
    runner = talk("--config", tiny_bundle().config)
    runner.say("tell me")
    error = runner.until("error")[-1]
    assert error["code"] == "runner.usage"
    assert "'tell me' is no request" in error["message"]
    assert runner.process.wait(30) == 2


def test_prompts_come_from_one_place(tiny_bundle, llama_runner) -> None:
    run = llama_runner("--config", tiny_bundle().config, "--interactive", "--prompt-ids", "1")
    assert run.status == 2
    assert run.one("error")["code"] == "runner.usage"
