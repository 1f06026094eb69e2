"""One file of weights under any name, in safetensors or of `torch.save`, with `config.json` or `params.json` beside it: what torchtune, training
scripts and downloads of single files leave."""

from __future__ import annotations

import re
from pathlib import Path

from etcli.checkpoint import meta
from etcli.checkpoint.hf_config import CONFIG, read_config
from etcli.checkpoint.hf_files import PYTORCH, SAFETENSORS
from etcli.checkpoint.meta_config import HF_WORDS, PARAMS, read_params
from etcli.checkpoint.state_dict import read_header, weights_kind
from etcli.checkpoint.weights import Weights, WeightsCheckpoint, examine_weights
from etcli.common.errors import CheckpointError, Problem, Problems

NAME = "weights"

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
_NO_WEIGHTS = re.compile(r"(optimizer|scheduler|training_args|rng_state|scaler|recipe_state|adapter)")


def recognises(path: Path) -> bool:
    """Whether `path` is such a file, or a folder with a configuration and just one file that may be."""
    if path.is_dir():
        return _configured(path) and len(_candidates(path)) == 1
    return path.is_file() and weights_kind(path) is not None


def examine(path: Path) -> tuple[WeightsCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from headers alone."""
    problems, remarks = Problems(), list[str]()
    file = _candidates(path)[0] if path.is_dir() else path
    problems.add(_shard_problem(file))
    if not _configured(file.parent):
        problems.add(
            CheckpointError.problem(
                f"{file.name} comes without a configuration: there is neither {CONFIG} nor {PARAMS} beside it",
                code="checkpoint.missing",
                hint=f"Put the {CONFIG} that belongs to the weights beside it.",
                file=file,
            )
        )
    stored = problems.attempt(lambda: read_header(file, remarks))
    if stored is None or problems:
        return None, problems.found
    name = weights_kind(file) or NAME
    if (file.parent / CONFIG).is_file():
        weights = Weights(path, name, [stored], remarks)
        return examine_weights(weights, lambda _tensors, found, _remarks: read_config(file.parent, found), problems)
    weights = Weights(path, name, [stored], remarks, HF_WORDS)
    return examine_weights(
        weights, lambda tensors, found, notes: read_params(file.parent, tensors, found, notes), problems
    )


def _configured(folder: Path) -> bool:
    return (folder / CONFIG).is_file() or (folder / PARAMS).is_file()


def _candidates(folder: Path) -> list[Path]:
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.suffix in _ENDINGS and entry.is_file() and not _NO_WEIGHTS.match(entry.name)
    )


def _shard_problem(file: Path) -> Problem | None:
    """The problem of `file` being one part of several."""
    folder = file.parent
    shards = [
        name for files in (SAFETENSORS, PYTORCH) for name, (_, total) in files.shards(folder).items() if total > 1
    ]
    consolidated = [entry.name for entry in folder.iterdir() if meta.SHARD.fullmatch(entry.name)]
    for names in (shards, consolidated if len(consolidated) > 1 else []):
        if file.name in names:
            return CheckpointError.problem(
                f"{file.name} is one of several parts of a model",
                code="checkpoint.shard",
                hint=f"Name the folder: {folder}",
                file=file,
            )
    return None
