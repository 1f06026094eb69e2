"""GGUF files of the Llama family, as llama.cpp's converter writes them.

Names, key meanings and the order of query and key rows follow llama.cpp's `convert_hf_to_gguf.py` and `gguf-py/gguf/tensor_mapping.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.families import GGUF_FAMILIES
from etcli.checkpoint.gguf_config import ROPE_FACTORS, read_config
from etcli.checkpoint.gguf_split import read_whole
from etcli.checkpoint.hashes import TensorHashes
from etcli.checkpoint.layout import (
    EMBEDDING,
    HEAD,
    NORM,
    expected_shapes,
    layout_problems,
    stored_tensor,
    unused_problem,
)
from etcli.checkpoint.rope import rotate_half_rows, unscaled_remark
from etcli.checkpoint.stored import unmapped
from etcli.common.errors import CheckpointError, Problem, Problems
from etcli.common.gguf_file import MAGIC, GgufHeader, GgufTensor
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import Quality
from etcli.output.units import counted

if TYPE_CHECKING:
    import torch
    from gguf.constants import GGMLQuantizationType

NAME = "gguf"

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {"token_embd": EMBEDDING, "output_norm": NORM, "output": HEAD}
_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,8})\.([a-z_]+)\.(weight|bias)")
_OUTER = re.compile(r"(token_embd|output_norm|output)\.(weight|bias)")
_PAIRED = re.compile(r"self_attn\.([qk])_proj\.")
_BLOCK_VALUES = 1 << 22
_NAMED = 4

# Tensors that llama.cpp itself leaves out for these architectures: angles that follow from the keys.
_HARMLESS = re.compile(r"blk\.\d+\.attn_rot_embd\.weight")
# Tensors beside the layers that would change the answer if left out.
_TAKES_PART = re.compile(
    r"blk\.\d+\..*|rope_factors_(long|short)\.weight|(position_embd|token_embd_norm|token_types)\..*"
)


def recognises(path: Path) -> bool:
    """Whether `path` is a file that starts as GGUF does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def examine(path: Path) -> tuple[GgufCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from its header alone."""
    problems = Problems()
    header = read_whole(path, problems)
    if header is None:
        return None, problems.found
    names, extra = canonical_names(header.tensors)
    config = read_config(header, names, problems)
    if config is None:
        return None, problems.found
    tensors = {name: _info(tensor) for name, tensor in names.items()}
    problems.found.extend(layout_problems(config, tensors, path))
    checkpoint = GgufCheckpoint(path, header, config, names, tuple(extra))
    problems.add(unused_problem(config, [name for name in names if name not in checkpoint.tensors], path))
    problems.add(_unknown_problem(extra, path))
    problems.found.extend(_dtype_problems(names.values()))
    return (None if problems else checkpoint), problems.found


def _unknown_problem(extra: list[str], path: Path) -> Problem | None:
    unknown = [name for name in extra if _TAKES_PART.fullmatch(name) and not _HARMLESS.fullmatch(name)]
    if not unknown:
        return None
    kinds = list(dict.fromkeys(re.sub(r"^blk\.\d+\.", "blk.*.", name) for name in unknown))
    return CheckpointError.problem(
        f"{path.name} holds {counted(len(unknown), 'tensor')} of no network that etcli knows: "
        f"{', '.join(kinds[:_NAMED])}{', ...' if kinds[_NAMED:] else ''}",
        code="checkpoint.tensor_unknown",
        hint="The file is of a relative of Llama that computes otherwise; leaving these out would change its answers.",
        file=path,
    )


def _dtype_problems(tensors: Iterable[GgufTensor]) -> Iterator[Problem]:
    kinds: dict[tuple[Path, str], list[str]] = {}
    for tensor in tensors:
        if not _readable(tensor.type):
            kinds.setdefault((tensor.file, tensor.type.name), []).append(tensor.name)
    for (file, kind), named in sorted(kinds.items()):
        more = f" and {counted(len(named) - 1, 'more tensor')}" if named[1:] else ""
        yield CheckpointError.problem(
            f"{file.name} holds {named[0]}{more} in the type {kind}, which the gguf package cannot dequantise",
            code="checkpoint.dtype",
            hint="Use the model in another quantisation (F16, Q8_0, Q4_K_M, ...).",
            file=file,
        )


def canonical_names(tensors: Mapping[str, GgufTensor]) -> tuple[dict[str, GgufTensor], list[str]]:
    """The tensors under canonical names, and the file's own names of those that have none."""
    names: dict[str, GgufTensor] = {}
    extra: list[str] = []
    for name, tensor in tensors.items():
        layer, outer = _LAYER.fullmatch(name), _OUTER.fullmatch(name)
        if outer:
            names[_OUTER_NAMES[outer[1]].removesuffix("weight") + outer[2]] = tensor
        elif layer and layer[2] in _LAYER_NAMES:
            names[f"model.layers.{int(layer[1])}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"] = tensor
        elif name != ROPE_FACTORS:
            extra.append(name)
    return names, extra


class GgufCheckpoint:
    """An opened GGUF file, or the parts of one; implements `checkpoint.base.Checkpoint`."""

    format = NAME
    quality: Quality | None = None

    def __init__(
        self,
        path: Path,
        header: GgufHeader,
        config: ModelConfig,
        names: Mapping[str, GgufTensor],
        unused: tuple[str, ...],
    ) -> None:
        self.path = path
        self.config = config
        self.remarks = tuple(filter(None, [unscaled_remark(config)]))
        self._paired = GGUF_FAMILIES[header.metadata["general.architecture"]].paired
        self._stored = {name: names[name] for name in expected_shapes(config) if name in names}
        self.tensors: Mapping[str, TensorInfo] = {name: _info(tensor) for name, tensor in self._stored.items()}
        taken = {tensor.name for tensor in self._stored.values()}
        self.unused = tuple(sorted({*unused, *(tensor.name for tensor in names.values() if tensor.name not in taken)}))
        self._hashes = TensorHashes(*sorted({tensor.file for tensor in header.tensors.values()} or {path}))

    def read(self, name: str) -> torch.Tensor:
        """See `Checkpoint.read`. Query and key rows come in rotate-half order."""
        import torch

        tensor = self._tensor(name)
        if len(tensor.shape) == 1:
            values = _dequantize(self._map(tensor)[np.newaxis], tensor.type)[0]
            return torch.from_numpy(values if (order := self._order(name)) is None else values[order])
        # Blocks of rows, so that nothing but the result is ever there as a whole.
        values = np.empty(tensor.shape, np.float32)
        step = max(1, _BLOCK_VALUES // tensor.shape[-1])
        for start in range(0, tensor.shape[0], step):
            values[start : start + step] = self._rows(name, start, start + step)
        return torch.from_numpy(values)

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """See `Checkpoint.read_rows`."""
        import torch

        if len(self._tensor(name).shape) == 1:
            return self.read(name)[start:stop].clone()
        return torch.from_numpy(np.ascontiguousarray(self._rows(name, start, stop)))

    def sha256(self, name: str) -> str:
        """See `Checkpoint.sha256`."""
        tensor = self._tensor(name)
        return self._hashes.sha256(name, tensor.file, tensor.offset, tensor.nbytes, _info(tensor))

    def _tensor(self, name: str) -> GgufTensor:
        return stored_tensor(self._stored, name, self.path)

    def _order(self, name: str) -> npt.NDArray[np.intp] | None:
        """Which stored row each row of `name` is, where they are not in order."""
        match = _PAIRED.search(name) if self._paired else None
        if match is None:
            return None
        rows = np.arange(self._tensor(name).shape[0])
        return rotate_half_rows(rows, self.config.num_heads if match[1] == "q" else self.config.num_kv_heads)

    def _rows(self, name: str, start: int, stop: int) -> npt.NDArray[np.float32]:
        tensor, order = self._tensor(name), self._order(name)
        stored = self._map(tensor)
        return _dequantize(np.asarray(stored[start:stop] if order is None else stored[order[start:stop]]), tensor.type)

    def _map(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        # A map for each read, so that pages of finished tensors do not count as this process's memory.
        rows = (*tensor.shape[:-1], tensor.row_bytes)
        try:
            return np.memmap(tensor.file, mode="r", offset=tensor.offset, shape=rows, dtype=np.uint8)
        except (OSError, ValueError) as error:
            raise unmapped(tensor.name, tensor.file, error) from None


def _dequantize(stored: npt.NDArray[np.uint8], kind: GGMLQuantizationType) -> npt.NDArray[np.float32]:
    from gguf.quants import dequantize

    plain = {"F32": "<f4", "F16": "<f2"}
    if kind.name in plain:
        return stored.view(plain[kind.name]).astype(np.float32)  # always a copy, never a view of the map
    values: npt.NDArray[np.float32] = dequantize(stored, kind)
    return values


@functools.lru_cache(maxsize=64)
def _readable(kind: GGMLQuantizationType) -> bool:
    from gguf.constants import GGML_QUANT_SIZES

    _, size = GGML_QUANT_SIZES[kind]
    try:
        _dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _info(tensor: GgufTensor) -> TensorInfo:
    return TensorInfo(shape=tensor.shape, dtype=tensor.type.name, nbytes=tensor.nbytes)
