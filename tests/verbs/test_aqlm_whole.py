"""The whole way with AQLM weights: exported, built with the operators, pushed through real adb, run; the tokens are those of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from aqlm_folders import write_aqlm_folder
from aqlm_oracle import dense_network
from device_fixtures import MakeDevice

pytestmark = pytest.mark.early

NEW_TOKENS = 12

RECIPE = """
name: whole-aqlm
model: {{source: {source}}}
export: {{precision: aqlm, head: fp32, chunks: 2, shapes: [8t48c, 1t48c]}}
build: {{openmp: static}}
run: {{prompt: "What is the capital of Japan?", max_new_tokens: {new_tokens}, threads: 2}}
"""


@pytest.mark.parametrize("arch", ["x86_64", pytest.param("aarch64", marks=pytest.mark.full)])
def test_from_an_aqlm_folder_to_the_tokens_of_the_dense_network(
    random_llama: Callable[..., Path], virtual_device: MakeDevice, tmp_path: Path, arch: str
) -> None:
    dense = write_aqlm_folder(tmp_path / "m", tokenizer=random_llama(tokenizer=True))
    (tmp_path / "etcli.yaml").write_text(RECIPE.format(source=tmp_path / "m", new_tokens=NEW_TOKENS))
    command = [sys.executable, "-m", "etcli", "smoke", "--serial", virtual_device(arch).serial, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)["result"]
    prompt = torch.tensor([result["prompt_ids"]])
    with torch.no_grad():
        right = dense_network(tmp_path / "m", dense).generate(
            prompt, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=1
        )
    assert result["tokens"] == right[0, prompt.shape[1] :].tolist()
    assert result["tokens"] == result["reference_tokens"]
    manifest = json.loads((tmp_path / ".etcli" / "whole-aqlm" / "bundle" / "manifest.json").read_text())
    needed = {
        name
        for chunk in manifest["chunks"]
        for file in chunk["files"]
        for method in file["methods"]
        for name in method["operators"]
    }
    assert needed == {"aqlm::code2x8_lut_matmat.out", "etcli::ring_attention.out", "etcli::last_row.out"}
