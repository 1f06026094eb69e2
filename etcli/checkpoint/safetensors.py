"""Hugging Face folders: `config.json` beside `model.safetensors`, or beside shards listed in `model.safetensors.index.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.hashes import TensorHashes
from etcli.checkpoint.hf_config import CONFIG, read_config
from etcli.checkpoint.layout import EMBEDDING, HEAD, expected_shapes, layout_problems, stored_tensor, unused_problem
from etcli.checkpoint.safetensors_header import StoredTensor, read_safetensors_header
from etcli.common.errors import CheckpointError, EtcliError, Problem, Problems
from etcli.common.files import check_relative
from etcli.common.jsonfile import read_object
from etcli.manifests.model import ModelConfig

if TYPE_CHECKING:
    import torch

NAME = "safetensors"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
READABLE = ("F32", "F16", "BF16")

# Tensors by which other programs' names for the same network are told.
_DIALECTS = {
    "layers.0.attention.wq.weight": "Meta's own (tok_embeddings, attention.wq)",
    "layers.0.attn.q_proj.weight": "torchtune's (tok_embeddings, attn.q_proj)",
    "transformer.h.0.attn.c_attn.weight": "GPT-2's (transformer.h)",
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": "a LoRA adapter's",
}


def recognises(path: Path) -> bool:
    """Whether `path` is a folder with a configuration and weights in safetensors."""
    return (path / CONFIG).is_file() and ((path / SINGLE).is_file() or (path / INDEX).is_file())


def examine(path: Path) -> tuple[SafetensorsCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from headers alone."""
    problems = Problems()
    stored = _stored(path, problems)
    config = read_config(path, problems)
    if config is None or stored is None:
        return None, problems.found
    dialect = next((words for name, words in _DIALECTS.items() if name in stored), None)
    if dialect is not None:
        problems.add(
            CheckpointError.problem(
                f"the tensors of {path.name} have names in another style: {dialect}",
                code="checkpoint.dialect",
                hint="Use the Hugging Face form of the model; transformers' conversion scripts make it.",
                file=path,
            )
        )
        return None, problems.found
    named = canonical_names(stored)
    infos = {name: _info(tensor) for name, tensor in named.items()}
    problems.found.extend(layout_problems(config, infos, path))
    expected = expected_shapes(config)
    spare = [HEAD] if config.tied_embeddings else []
    problems.add(unused_problem(config, [name for name in named if name not in expected and name not in spare], path))
    for kind in sorted({named[name].dtype for name in expected if name in named} - set(READABLE)):
        problems.add(
            CheckpointError.problem(
                f"{path.name} holds tensors of the type {kind}, which is not supported",
                code="checkpoint.dtype",
                hint=f"Supported types: {', '.join(READABLE)}. Save the model in one of them.",
                file=path,
            )
        )
    return (None if problems else SafetensorsCheckpoint(path, config, stored, named)), problems.found


def canonical_names(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors under canonical names. A bare `LlamaModel` was saved without `model.`; old frequency tables are left out."""
    bare = EMBEDDING not in stored and EMBEDDING.removeprefix("model.") in stored
    return {
        f"model.{name}" if bare and name != HEAD else name: tensor
        for name, tensor in stored.items()
        if not name.endswith("rotary_emb.inv_freq")
    }


def _stored(folder: Path, problems: Problems) -> dict[str, StoredTensor] | None:
    """Every tensor of the folder by the file's own name, or None with the reasons in `problems`."""
    if (folder / SINGLE).is_file():
        return _header(folder / SINGLE, problems)
    try:
        index = read_object(folder / INDEX, code="checkpoint.index")
    except EtcliError as error:
        problems.absorb(error)
        return None
    places = index.get("weight_map")
    try:
        if not isinstance(places, dict) or not places:
            raise ValueError("it has no weight_map")
        shards = {str(name): check_relative(str(file)).as_posix() for name, file in places.items()}
    except ValueError as error:
        problems.add(_index_problem(folder, f"{INDEX} is wrong: {error}"))
        return None
    absent = sorted({file for file in shards.values() if not (folder / file).is_file()})
    if absent:
        problems.add(
            CheckpointError.problem(
                f"{len(absent)} of {len(set(shards.values()))} shards are missing: {', '.join(absent[:4])}{', ...' if absent[4:] else ''}",
                code="checkpoint.shard_missing",
                hint="Fetch the missing files into the folder.",
                file=folder / INDEX,
            )
        )
    headers = {file: _header(folder / file, problems) for file in sorted(set(shards.values()) - set(absent))}
    if absent or any(header is None for header in headers.values()):
        return None
    everything = {name: tensor for header in headers.values() for name, tensor in (header or {}).items()}
    lost = sorted(name for name, file in shards.items() if name not in (headers[file] or {}))
    if lost:
        problems.add(
            _index_problem(
                folder, f"{len(lost)} tensors are not in the shard that {INDEX} names: {', '.join(lost[:3])}"
            )
        )
        return None
    # A tensor that several shards hold is the one in the shard that the index names.
    return everything | {name: (headers[file] or {})[name] for name, file in shards.items()}


def _header(path: Path, problems: Problems) -> dict[str, StoredTensor] | None:
    try:
        return read_safetensors_header(path)
    except EtcliError as error:
        problems.absorb(error)
        return None


def _index_problem(folder: Path, message: str) -> Problem:
    hint = "Fetch the folder again; its files are not of one version."
    return CheckpointError.problem(message, code="checkpoint.index", hint=hint, file=folder / INDEX)


class SafetensorsCheckpoint:
    """An opened Hugging Face folder; implements `checkpoint.base.Checkpoint`."""

    format = NAME
    remarks: tuple[str, ...] = ()

    def __init__(
        self, path: Path, config: ModelConfig, stored: Mapping[str, StoredTensor], named: Mapping[str, StoredTensor]
    ) -> None:
        self.path = path
        self.config = config
        self._stored = {name: named[name] for name in expected_shapes(config)}
        self.tensors: Mapping[str, TensorInfo] = {name: _info(tensor) for name, tensor in self._stored.items()}
        self.unused = tuple(sorted(set(stored) - {tensor.name for tensor in self._stored.values()}))
        self._hashes = TensorHashes(*sorted({tensor.file for tensor in self._stored.values()}))

    def read(self, name: str) -> torch.Tensor:
        """See `Checkpoint.read`."""
        return self._read(name, lambda file, stored: file.get_tensor(stored))

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """See `Checkpoint.read_rows`."""
        return self._read(name, lambda file, stored: file.get_slice(stored)[start:stop])

    def _read(self, name: str, take: Callable[[Any, str], torch.Tensor]) -> torch.Tensor:
        import safetensors
        import torch

        tensor = self._tensor(name)
        try:
            # Opened for each read, so that pages of finished tensors do not count as this process's memory.
            with safetensors.safe_open(tensor.file, framework="pt") as file:
                return take(file, tensor.name).to(torch.float32, copy=True).contiguous()
        except (OSError, safetensors.SafetensorError) as error:
            raise CheckpointError(
                f"{name} cannot be read from {tensor.file.name}: {error}",
                code="checkpoint.truncated",
                hint="The file changed since it was opened, or is on storage that fails. Fetch it again.",
                file=tensor.file,
            ) from None

    def sha256(self, name: str) -> str:
        """See `Checkpoint.sha256`."""
        tensor = self._tensor(name)
        return self._hashes.sha256(name, tensor.file, tensor.offset, tensor.nbytes, _info(tensor))

    def _tensor(self, name: str) -> StoredTensor:
        return stored_tensor(self._stored, name, self.path)


def _info(tensor: StoredTensor) -> TensorInfo:
    return TensorInfo(shape=tensor.shape, dtype=tensor.dtype, nbytes=tensor.nbytes)
