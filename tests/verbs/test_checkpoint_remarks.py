"""What was assumed about a checkpoint stands in the output of every verb that looks at one; a hostile one ends in exit 5."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_writing import write_meta


def etcli(cwd: Path, *words: object) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "etcli", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def meta(random_llama: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder in Meta's form, and a recipe that names it."""
    source = random_llama(tokenizer=True)
    folder = write_meta(source, tmp_path / "meta", shards=2)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder)
    text = "name: tiny\nmodel: {source: meta}\nexport: {chunks: 2, shapes: [8t64c, 1t64c]}\n"
    (tmp_path / "etcli.yaml").write_text(text)
    return folder


def test_validate_and_inspect_show_what_was_assumed(meta: Path) -> None:
    for words in (("validate",), ("inspect", meta)):
        code, document = etcli(meta.parent, *words)
        assert code == 0, document
        told = [warning["message"] for warning in document["warnings"] if warning["code"] == "checkpoint.remark"]
        assert told == [
            'params.json does not say how long a context may be; 2048 is Llama 1\'s, with norm_eps 1e-06 (otherwise add "max_seq_len")'
        ]
    assert document["result"]["checkpoint"]["unused"] == ["rope.freqs"]


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.known_failure("checkpoint-hostile-pickle")
def test_a_hostile_shard_is_the_checkpoints_exit_code(meta: Path) -> None:
    torch.save({"x": Hostile(meta / "ran")}, meta / "consolidated.01.pth")
    for words in (("validate",), ("inspect", meta), ("export", "--dry-run")):
        code, document = etcli(meta.parent, *words)
        assert code == document["exit"] == 5
        (error,) = document["errors"]
        assert error["code"] == "checkpoint.unsafe_pickle"
        assert error["file"] == str(meta / "consolidated.01.pth")
        assert "mkdir" in error["message"]
    assert not (meta / "ran").exists()
