"""An adapter makes anew what it changes, and nothing else. No worker may start in these tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_export import Exported, load_document

from etcli.export.job import LowerWork
from etcli.export.pool import Pool, Task
from etcli.recipe.outdated import bundle_outdated


class _Started(Exception):
    pass


def test_only_pieces_with_changed_tensors_are_made(
    copied: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []

    def refuse(self: Pool, tasks: Sequence[Task]) -> None:
        titles.extend(task.title for task in tasks if not isinstance(task.work, LowerWork))
        raise _Started

    monkeypatch.setattr(Pool, "run", refuse)
    name = "base_model.model.model.layers.1.self_attn.q_proj"
    width = json.loads((copied.checkpoint / "config.json").read_text())["hidden_size"]
    factors = {f"{name}.lora_A.weight": torch.ones(2, width), f"{name}.lora_B.weight": torch.ones(width, 2)}
    adapter = tmp_path / "lora"
    adapter.mkdir()
    safetensors.torch.save_file(factors, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    copied.again()
    assert titles == []
    copied.document["model"]["adapter"] = str(adapter)
    assert bundle_outdated(load_document(copied.document), copied.manifest, copied.bundle) is not None
    with pytest.raises(_Started):
        copied.again()
    assert titles == ["chunk 1"]
