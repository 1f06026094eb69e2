"""A conversation with a small random model over real adb: each turn's ids are those of the whole conversation in transformers' template."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from device_fixtures import MakeDevice
from transformers import AutoTokenizer, LlamaForCausalLM

pytestmark = pytest.mark.early

QUESTIONS = ["What is the capital of Japan?", "And of <|im_end|> France?", "Why?"]
NEW_TOKENS = 6

RECIPE = """
name: talk
model: {{source: {source}}}
export: {{backend: portable, chunks: 2, shapes: [8t256c, 1t256c]}}
run: {{max_new_tokens: {new_tokens}, system: Be brief.}}
"""


@pytest.fixture(scope="module")
def model(random_llama: Callable[..., Path]) -> Path:
    return random_llama(tokenizer=True, seed=5)


@pytest.fixture(scope="module")
def etcli(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """`etcli(*words, feed="")` in a folder that holds the exported and built recipe: the JSON document's result."""
    folder = tmp_path_factory.mktemp("talk")
    (folder / "etcli.yaml").write_text(RECIPE.format(source=model, new_tokens=NEW_TOKENS))

    def call(*words: str, feed: str = "") -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "etcli", *words, "--json"],
            cwd=folder,
            input=feed,
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    call("export")
    call("build", "--target", "host")
    return call


@pytest.mark.parametrize("protocol", ["new", "old"])
def test_turns_are_the_whole_conversation(
    etcli: Callable[..., dict[str, Any]], model: Path, virtual_device: MakeDevice, protocol: str
) -> None:
    serial = virtual_device("x86_64", protocol=protocol).serial
    etcli("deploy", "--serial", serial)
    turns = etcli("run", "--interactive", "--serial", serial, feed="".join(f"{q}\n" for q in QUESTIONS))["turns"]
    assert [turn["prompt"] for turn in turns] == QUESTIONS

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    messages = [{"role": "system", "content": "Be brief."}]
    held: list[int] = []
    for turn in turns:
        ids = turn["prompt_ids"]
        if "<|" not in "".join(message["content"] for message in messages) + turn["prompt"]:
            # words that spell special tokens stay words with etcli, which transformers cannot be told
            chat = [*messages, {"role": "user", "content": turn["prompt"]}]
            assert ids == list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
        common = next((i for i, (a, b) in enumerate(zip(held, ids, strict=False)) if a != b), len(held))
        assert turn["cached_tokens"] == common
        assert (turn["cached_tokens"] > 20) == bool(held)
        with torch.no_grad():
            out = network.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=1)
        assert turn["tokens"] == out[0, len(ids) :].tolist()
        messages += [
            {"role": "user", "content": turn["prompt"]},
            {"role": "assistant", "content": turn["text"]},
        ]
        held = [*ids, *turn["tokens"]]


def test_sampling_by_flags_is_recorded_and_repeats(
    etcli: Callable[..., dict[str, Any]], virtual_device: MakeDevice
) -> None:
    serial = virtual_device("x86_64").serial
    etcli("deploy", "--serial", serial)
    words = ("run", "--serial", serial, "--prompt", "Hi", "--temperature", "1.5", "--top-p", "0.95")
    first = etcli(*words, "--seed", "1")
    assert first["sampling"] == {"temperature": 1.5, "top_p": 0.95, "seed": 1}
    assert etcli(*words, "--seed", "1")["tokens"] == first["tokens"]
    assert etcli(*words, "--seed", "2")["tokens"] != first["tokens"]
    assert etcli("run", "--serial", serial, "--prompt", "Hi")["sampling"] is None
