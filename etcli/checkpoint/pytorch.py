"""Hugging Face folders of pickled files: `config.json` beside `pytorch_model.bin`, or its shards with or without an index."""

from __future__ import annotations

from pathlib import Path

from etcli.checkpoint.hf_config import CONFIG, read_config
from etcli.checkpoint.hf_files import PYTORCH, stored_tensors
from etcli.checkpoint.state_dict import read_header
from etcli.checkpoint.weights import Weights, WeightsCheckpoint, examine_weights
from etcli.common.errors import Problem, Problems

NAME = "pytorch"


def recognises(path: Path) -> bool:
    """Whether `path` is a folder with a configuration and pickled weights."""
    return (path / CONFIG).is_file() and PYTORCH.present(path)


def examine(path: Path) -> tuple[WeightsCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from headers alone."""
    problems, remarks = Problems(), list[str]()
    stored = stored_tensors(path, PYTORCH, lambda file: read_header(file, remarks), problems, remarks)
    if stored is None:
        read_config(path, problems)
        return None, problems.found
    return examine_weights(
        Weights(path, NAME, [stored], remarks), lambda _tensors, found, _remarks: read_config(path, found), problems
    )
