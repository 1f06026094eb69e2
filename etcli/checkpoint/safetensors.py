"""Hugging Face folders: `config.json` beside `model.safetensors`, or beside shards with or without `model.safetensors.index.json`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from etcli.checkpoint import meta
from etcli.checkpoint.hf_config import CONFIG, read_config
from etcli.checkpoint.hf_files import PYTORCH, SAFETENSORS, stored_tensors
from etcli.checkpoint.safetensors_header import read_safetensors_header
from etcli.checkpoint.weights import Weights, WeightsCheckpoint, examine_weights
from etcli.common.errors import Problem, Problems
from etcli.manifests.quantised import QuantisedRecord

NAME = "safetensors"


def recognises(path: Path) -> bool:
    """Whether `path` is a folder with a configuration and weights in safetensors."""
    return (path / CONFIG).is_file() and SAFETENSORS.present(path)


def examine(path: Path) -> tuple[WeightsCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from headers alone."""
    problems, remarks = Problems(), list[str]()
    stored = stored_tensors(path, SAFETENSORS, read_safetensors_header, problems, remarks)
    pickled = f"{PYTORCH.stem}*{PYTORCH.suffix}"
    if PYTORCH.present(path):
        remarks.append(f"{path.name} holds its weights twice; the safetensors files are read, {pickled} are left aside")
    if meta.recognises(path):
        remarks.append(
            f"{path.name} holds its weights twice; those of {CONFIG} are read, consolidated.* are left aside"
        )
    if stored is None:
        if PYTORCH.present(path):
            hint = f"Or remove the safetensors files, to have {pickled} read."
            problems.found = [
                replace(problem, hint=f"{problem.hint or ''} {hint}".strip()) for problem in problems.found
            ]
        read_config(path, problems)
        return None, problems.found
    weights = Weights(
        path,
        NAME,
        [stored],
        remarks,
        quality="demonstration" if (path / QuantisedRecord.FILE).is_file() else None,
    )
    return examine_weights(weights, lambda _tensors, found, _remarks: read_config(path, found), problems)
