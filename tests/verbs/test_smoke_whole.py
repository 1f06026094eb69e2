"""The whole way with a small random model: exported, built, pushed through real adb, run; the tokens are those of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from device_fixtures import MakeDevice
from transformers import AutoTokenizer, LlamaForCausalLM

pytestmark = pytest.mark.early

PROMPT = "What is the capital of Japan?"
NEW_TOKENS = 12

RECIPE = """
name: whole
model: {{source: {source}}}
export: {{backend: {backend}, chunks: 2, shapes: [8t48c, 1t48c]}}
run: {{prompt: "{prompt}", max_new_tokens: {new_tokens}}}
"""


def etcli(*words: str | Path, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Exit status, JSON document and stderr of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "etcli", *map(str, words), "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def reported(path: Path) -> dict[str, str]:
    """The cases of a JUnit report: `passed`, `skipped` or `failure`."""
    found = {}
    for case in ET.parse(path).iter("testcase"):
        kinds = {child.tag for child in case} & {"skipped", "failure"}
        found[case.attrib["name"]] = next(iter(kinds), "passed")
    return found


def right_tokens(model: Path) -> tuple[list[int], list[int]]:
    """Prompt ids and greedy continuation by transformers."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    chat = [{"role": "user", "content": PROMPT}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    network = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        out = network.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=1)
    return list(ids), out[0, len(ids) :].tolist()


def test_from_checkpoint_to_tokens(
    random_llama: Callable[..., Path], virtual_device: MakeDevice, tmp_path: Path
) -> None:
    model = random_llama(tokenizer=True, seed=3)
    serial = virtual_device("x86_64").serial
    recipe = tmp_path / "etcli.yaml"
    values = {"source": model, "prompt": PROMPT, "new_tokens": NEW_TOKENS}
    recipe.write_text(RECIPE.format(backend="xnnpack", **values))
    prompt_ids, tokens = right_tokens(model)

    code, document, errors = etcli("smoke", "--serial", serial, "--junit", "out.xml", folder=tmp_path)
    assert code == 0, errors
    cases = reported(tmp_path / "out.xml")
    assert set(cases.values()) == {"passed"}
    programs = [f"chunks/whole_{chunk}.pte computes what eager PyTorch does" for chunk in (0, 1)]
    assert set(cases) >= {*programs, "audit of etcli_llama_runner", "the tokens agree with the reference's"}
    result = document["result"]
    assert result["prompt_ids"] == prompt_ids
    assert result["tokens"] == result["reference_tokens"] == tokens
    assert [stage["current"] for stage in result["stages"]] == [False] * 6
    assert result["device"]["serial"] == serial

    code, document, errors = etcli("smoke", "--serial", serial, "--junit", "out.xml", folder=tmp_path)
    assert code == 0, errors
    cases = reported(tmp_path / "out.xml")
    assert {cases[program] for program in programs} == {"skipped"}
    assert cases["the tokens agree with the reference's"] == "passed"
    stages = {stage["name"]: stage["current"] for stage in document["result"]["stages"]}
    assert stages == {
        "device": False,
        "export": True,
        "build": True,
        "deploy": True,
        "run": False,
        "compare": False,
    }
    assert document["result"]["sent_bytes"] == 0

    code, document, errors = etcli("run", "--serial", serial, "--max-new-tokens", "3", folder=tmp_path)
    assert code == 0, errors
    assert document["result"]["tokens"] == tokens[:3]
    assert document["result"]["stop_reason"] == "max_new_tokens"

    recipe.write_text(RECIPE.format(backend="portable", **values))
    code, document, errors = etcli("run", "--serial", serial, folder=tmp_path)
    assert code == 2
    assert document["errors"][0]["code"] == "bundle.outdated"
    assert "etcli export" in document["errors"][0]["hint"]
