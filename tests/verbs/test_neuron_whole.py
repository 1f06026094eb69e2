"""The whole way to the simulated NPU, with the default model and with a small random one: exported, built, pushed through real adb, run, compared.

All have one name and so one workspace: what is built for a device serves every bundle, and the graphs of a precision are quantised for its first layout
and device, and are there for the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from device_fixtures import MakeDevice
from shift_contract import check_shift_bundle
from transformers import LlamaForCausalLM

pytestmark = pytest.mark.early

NAME = "smollm2-135m-neuron-sim"
NEW_TOKENS = 12

RECIPE = """
name: {name}
model: {{source: {source}}}
export: {{backend: neuron, precision: {precision}, layout: {layout}, chunks: 1, shapes: [8t48c, 1t48c]}}
neuron:
  platform: mt6991
  sdk: simulator
  calibration: {{prompts: ["What is the capital of Japan?", "Tokyo"], response_cap: {new_tokens}}}
run: {{prompt: "What is the capital of Japan?", max_new_tokens: {new_tokens}}}
"""

GAPS = {"A16W8": (0.02, 0.1), "A16W4": (0.02, 0.8), "A8W8": (0.2, 0.8)}
"""How far a token's logit may be below the best at its place: by the quantised graph, which the device computes too, and by transformers in
float32. Both are narrower than what `smoke` allows; logits of the random model go up to 2.5, so that any token of another network is further off."""

on_both_devices = pytest.mark.parametrize("arch", ["x86_64", pytest.param("aarch64", marks=pytest.mark.full)])


@dataclass
class Scene:
    """A folder to work in, which has the workspace, and the random model: two layers, hidden size 64, 512 words."""

    folder: Path
    model: Path

    def smoke(self, recipe: str, serial: str) -> dict[str, Any]:
        """The result of a smoke, which must be a good one."""
        command = [sys.executable, "-m", "etcli", "smoke", recipe, "--serial", serial, "--json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=1500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        document = json.loads(done.stdout)
        assert "neuron.simulated" in {warning["code"] for warning in document["warnings"]}
        result: dict[str, Any] = document["result"]
        assert result["simulated"]
        check_shift_bundle(self.folder / ".etcli" / NAME / "bundle")
        print(json.dumps({key: result[key] for key in ("text", "tokens", "exact_matches", "largest_gap", "stages")}))
        return result


@pytest.fixture(scope="module")
def scene(random_llama: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("whole-npu"), random_llama(tokenizer=True, seed=5, vocab_size=512))


@pytest.mark.timeout(1600)
@on_both_devices
def test_the_default_model_answers(scene: Scene, default_model: Path, virtual_device: MakeDevice, arch: str) -> None:
    result = scene.smoke(NAME, virtual_device(arch).serial)
    assert result["text"] == "The capital of Japan is Tokyo."
    assert result["stop_reason"] == "stop_id"
    assert result["exact_matches"] >= len(result["tokens"]) - 1


@on_both_devices
@pytest.mark.parametrize(
    ("precision", "layout"),
    [
        ("A16W8", "package"),
        ("A16W8", "separate"),
        pytest.param("A16W4", "package", marks=pytest.mark.full),
        pytest.param("A16W4", "separate", marks=pytest.mark.full),
        ("A8W8", "package"),
        pytest.param("A8W8", "separate", marks=pytest.mark.full),
    ],
)
def test_every_layout_and_precision(
    scene: Scene, virtual_device: MakeDevice, precision: str, layout: str, arch: str
) -> None:
    recipe = scene.folder / "random.yaml"
    values = {"source": scene.model, "precision": precision, "layout": layout, "new_tokens": NEW_TOKENS}
    recipe.write_text(RECIPE.format(name=NAME, **values))
    result = scene.smoke(str(recipe), virtual_device(arch).serial)
    prompt, tokens = result["prompt_ids"], result["tokens"]
    with torch.no_grad():
        network = LlamaForCausalLM.from_pretrained(scene.model, dtype=torch.float32).eval()
        logits = network(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
    gap = (logits.max(1).values - logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]).max().item()
    by_graph, by_float = GAPS[precision]
    assert result["largest_gap"] <= by_graph
    assert gap <= by_float
    print("float gap", gap)
