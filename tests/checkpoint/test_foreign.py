"""What is no checkpoint is told for what it is, with the way on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etcli.checkpoint.checks import header_problems
from etcli.common.errors import ExitCode, Problem


def only(path: Path) -> Problem:
    (problem,) = header_problems(path)
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "text"),
        (b"tjgg\1\0\0\0", "older than GGUF"),
        (b"\x7fELF\2\1\1", "no known format"),
    ],
    ids=str,
)
@pytest.mark.known_failure("checkpoint-lfs-pointer")
def test_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert words in only(path).message


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "without config.json"),
        (("a.gguf", "b.gguf"), "GGUF files"),
        (("params.json", "tokenizer.model"), "without consolidated"),
        ((".metadata", "__0_0.distcp"), "distributed checkpoint"),
        (("a.safetensors", "b.bin"), "without config.json"),
        (("config.json", "a.safetensors", "b.safetensors"), "several files of weights"),
        (("adapter_config.json", "adapter_model.safetensors"), "LoRA"),
        (("config.json",), "without model.safetensors"),
        (("snapshot/config.json",), "not a checkpoint folder itself"),
    ],
    ids=str,
)
def test_folders(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({}))
    assert words in only(tmp_path).message


def test_nothing(tmp_path: Path) -> None:
    assert only(tmp_path / "none").code == "checkpoint.missing"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0)
    assert only(path).code == "checkpoint.unreadable"
