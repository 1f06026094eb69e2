"""Meta's own form: `params.json` beside `consolidated.00.pth`, or beside the model-parallel shards 00, 01, ... (also Mistral's, in safetensors)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etcli.checkpoint.hf_config import CONFIG, read_config
from etcli.checkpoint.meta_config import CODE, HF_WORDS, PARAMS, read_params
from etcli.checkpoint.state_dict import read_header
from etcli.checkpoint.stored import StoredTensor
from etcli.checkpoint.weights import Weights, WeightsCheckpoint, examine_weights
from etcli.common.errors import CheckpointError, EtcliError, Problem, Problems
from etcli.common.jsonfile import read_object
from etcli.output.units import counted

NAME = "meta"
SHARD = re.compile(r"consolidated\.(\d{2})\.(pth|pt|safetensors)")
_WHOLE = ("consolidated.safetensors", "consolidated.pth")


def recognises(path: Path) -> bool:
    """Whether `path` is a folder with consolidated weights."""
    return path.is_dir() and any(SHARD.fullmatch(entry.name) or entry.name in _WHOLE for entry in path.iterdir())


def examine(path: Path) -> tuple[WeightsCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from headers alone."""
    problems, remarks = Problems(), list[str]()
    files = _files(path, problems)
    parts = [problems.attempt(functools.partial(read_header, file, remarks)) for file in files]
    if not problems:
        problems.add(_count_problem(path, files, parts[0] or {}) or _shared_heads_problem(path, files))
    hugging = (path / CONFIG).is_file() and not (path / PARAMS).is_file()
    if problems:
        _ = read_config(path, problems) if hugging else read_params(path, {}, problems, [])
        return None, problems.found
    weights = Weights(path, NAME, [part for part in parts if part is not None], remarks, {} if hugging else HF_WORDS)
    if hugging:
        return examine_weights(weights, lambda _tensors, found, _remarks: read_config(path, found), problems)
    return examine_weights(weights, lambda tensors, found, notes: read_params(path, tensors, found, notes), problems)


def _files(path: Path, problems: Problems) -> list[Path]:
    """The weights' files in the order of their parts; what is missing or too many goes into `problems`."""
    shards: dict[int, list[str]] = {}
    for name in sorted(entry.name for entry in path.iterdir()):
        match = SHARD.fullmatch(name)
        if match:
            shards.setdefault(int(match[1]), []).append(name)
    whole = [name for name in _WHOLE if (path / name).is_file()]
    numbers = sorted(shards)
    names = [*whole, *(name for number in numbers for name in shards[number])]
    if len(whole) > 1 or (whole and shards) or any(len(same) > 1 for same in shards.values()):
        problems.add(
            CheckpointError.problem(
                f"{path.name} holds its weights more than once: {', '.join(names[:4])}",
                code="checkpoint.ambiguous",
                hint="Remove all but one form.",
                file=path,
            )
        )
        return []
    absent = [number for number in range(max(numbers, default=-1) + 1) if number not in shards]
    if absent:
        problems.add(
            CheckpointError.problem(
                f"shards are missing: found {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}, "
                f"expected also {', '.join(f'consolidated.{number:02d}.pth' for number in absent[:4])}",
                code="checkpoint.shard_missing",
                hint="Fetch the missing files into the folder.",
                file=path,
            )
        )
    return [path / name for name in names]


def _count_problem(path: Path, files: Sequence[Path], part: Mapping[str, StoredTensor]) -> Problem | None:
    """The problem of more or fewer shards than the first one was cut for: its queries are that part of all."""
    query = next((tensor for name, tensor in part.items() if name.endswith("layers.0.attention.wq.weight")), None)
    if query is None or len(query.shape) != 2 or not query.shape[0]:
        return None
    total, rest = divmod(_query_rows(path) or query.shape[1], query.shape[0])
    if rest or total in (0, len(files)):
        return None
    found = ", ".join(file.name for file in files[:4]) + (", ..." if files[4:] else "")
    beyond = range(len(files), min(total, len(files) + 4))
    absent = f", expected also {', '.join(f'consolidated.{number:02d}.pth' for number in beyond)}" if beyond else ""
    return CheckpointError.problem(
        f"the folder holds {len(files)} of {counted(total, 'shard')}: found {found}{absent}",
        code="checkpoint.shard_missing" if beyond else "checkpoint.ambiguous",
        hint="Fetch the missing files into the folder."
        if beyond
        else "Some are left from another save; fetch the folder again.",
        file=path,
    )


def _shared_heads_problem(path: Path, files: Sequence[Path]) -> Problem | None:
    """The problem of more shards than KV heads: several shards then hold the same ones, as those of Llama 3.1 405B in 16 parts do."""
    heads = _told(path).get("n_kv_heads")
    if type(heads) is not int or not 0 < heads < len(files):
        return None
    return CheckpointError.problem(
        f"{len(files)} shards share {counted(heads, 'KV head')} (n_kv_heads), so that several hold the same keys and values, which is not supported",
        code="checkpoint.unsupported",
        hint=f"Use the model's Hugging Face folder, or its form of at most {counted(heads, 'shard')}.",
        file=path / PARAMS,
    )


def _query_rows(path: Path) -> int | None:
    """Rows of a whole query projection where `params.json` gives heads a size of their own; else they are as many as its columns."""
    heads, size = (_told(path).get(key) for key in ("n_heads", "head_dim"))
    return heads * size if type(heads) is int and type(size) is int else None


def _told(path: Path) -> dict[str, Any]:
    """What `params.json` says; nothing where it cannot be read, which is reported when the configuration is."""
    try:
        return read_object(path / PARAMS, code=CODE)
    except (EtcliError, OSError):
        return {}
