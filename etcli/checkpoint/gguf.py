"""GGUF files of the `llama` architecture, as llama.cpp's converter writes them.

Names, key meanings and the order of query and key rows follow llama.cpp's `convert_hf_to_gguf.py` and `gguf-py/gguf/tensor_mapping.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import gguf.constants
import gguf.quants
import numpy as np
import numpy.typing as npt

from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.gguf_config import ROPE_FACTORS, read_config
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
from etcli.common.errors import CheckpointError, EtcliError, Problem, Problems
from etcli.common.gguf_file import MAGIC, GgufHeader, GgufTensor, read_gguf_header
from etcli.manifests.model import ModelConfig

if TYPE_CHECKING:
    import torch

NAME = "gguf"

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {"token_embd.weight": EMBEDDING, "output_norm.weight": NORM, "output.weight": HEAD}
_LAYER = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")


def recognises(path: Path) -> bool:
    """Whether `path` is a file that starts as GGUF does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def examine(path: Path) -> tuple[GgufCheckpoint | None, list[Problem]]:
    """The checkpoint, or every reason why it is none, from its header alone."""
    try:
        header = read_gguf_header(path)
    except EtcliError as error:
        return None, list(error.problems)
    problems = Problems()
    if header.data_end > header.size:
        problems.add(
            CheckpointError.problem(
                f"{path.name} is cut off: it should have at least {header.data_end} bytes, it has {header.size}",
                code="checkpoint.truncated",
                hint="The download did not finish. Fetch the file again.",
                file=path,
            )
        )
    names, extra = canonical_names(header.tensors)
    config = read_config(header, names, problems)
    if config is None:
        return None, problems.found
    tensors = {name: _info(tensor) for name, tensor in names.items()}
    problems.found.extend(layout_problems(config, tensors, path))
    checkpoint = GgufCheckpoint(path, header, config, names, tuple(extra))
    problems.add(unused_problem(config, [name for name in names if name not in checkpoint.tensors], path))
    for kind in sorted({tensor.type for tensor in names.values()}):
        if not _readable(kind):
            problems.add(
                CheckpointError.problem(
                    f"{path.name} holds tensors of the type {kind.name}, which the gguf package cannot dequantise",
                    code="checkpoint.dtype",
                    hint="Use the model in another quantisation (F16, Q8_0, Q4_K_M, ...).",
                    file=path,
                )
            )
    return (None if problems else checkpoint), problems.found


def canonical_names(tensors: Mapping[str, GgufTensor]) -> tuple[dict[str, GgufTensor], list[str]]:
    """The tensors under canonical names, and the file's own names of those that have none."""
    names: dict[str, GgufTensor] = {}
    extra: list[str] = []
    for name, tensor in tensors.items():
        match = _LAYER.fullmatch(name)
        if name in _OUTER_NAMES:
            names[_OUTER_NAMES[name]] = tensor
        elif match and match[2] in _LAYER_NAMES:
            names[f"model.layers.{int(match[1])}.{_LAYER_NAMES[match[2]]}.{match[3]}"] = tensor
        elif name != ROPE_FACTORS:
            extra.append(name)
    return names, extra


class GgufCheckpoint:
    """An opened GGUF file; implements `checkpoint.base.Checkpoint`."""

    format = NAME
    remarks: tuple[str, ...] = ()

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
        self._stored = {name: names[name] for name in expected_shapes(config) if name in names}
        self.tensors: Mapping[str, TensorInfo] = {name: _info(tensor) for name, tensor in self._stored.items()}
        taken = {tensor.name for tensor in self._stored.values()}
        self.unused = tuple(sorted({*unused, *(tensor.name for tensor in names.values() if tensor.name not in taken)}))
        self._hashes = TensorHashes(path)

    def read(self, name: str) -> torch.Tensor:
        """See `Checkpoint.read`. Query and key rows come in rotate-half order."""
        import torch

        values = self._dequantized(self._tensor(name))
        match = re.search(r"self_attn\.([qk])_proj\.", name)
        if match:
            values = rotate_half_rows(values, self.config.num_heads if match[1] == "q" else self.config.num_kv_heads)
        return torch.from_numpy(np.ascontiguousarray(values))

    def sha256(self, name: str) -> str:
        """See `Checkpoint.sha256`."""
        tensor = self._tensor(name)
        return self._hashes.sha256(name, self.path, tensor.offset, tensor.nbytes, _info(tensor))

    def _tensor(self, name: str) -> GgufTensor:
        return stored_tensor(self._stored, name, self.path)

    def _dequantized(self, tensor: GgufTensor) -> npt.NDArray[np.float32]:
        # A map for each read, so that pages of finished tensors do not count as this process's memory.
        rows = (*tensor.shape[:-1], tensor.row_bytes)
        try:
            stored = np.memmap(self.path, mode="r", offset=tensor.offset, shape=rows, dtype=np.uint8)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{tensor.name} cannot be read from {self.path.name}: {error}",
                code="checkpoint.truncated",
                hint="The file changed since it was opened, or is on storage that fails. Fetch it again.",
                file=self.path,
            ) from None
        return _dequantize(np.asarray(stored), tensor.type)


def rotate_half_rows(values: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of a query or key projection (or its bias) from Meta's interleaved pairs `(h, i, j)` to rotate-half order `(h, j, i)`.

    Args:
        values: `[heads * head_dim, ...]`.
    """
    rows, *rest = values.shape
    return values.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(values.shape)


def _dequantize(stored: npt.NDArray[np.uint8], kind: gguf.constants.GGMLQuantizationType) -> npt.NDArray[np.float32]:
    plain = {gguf.constants.GGMLQuantizationType.F32: "<f4", gguf.constants.GGMLQuantizationType.F16: "<f2"}
    if kind in plain:
        return stored.view(plain[kind]).astype(np.float32)  # always a copy, never a view of the map
    values: npt.NDArray[np.float32] = gguf.quants.dequantize(stored, kind)
    return values


@functools.lru_cache(maxsize=64)
def _readable(kind: gguf.constants.GGMLQuantizationType) -> bool:
    _, size = gguf.constants.GGML_QUANT_SIZES[kind]
    try:
        _dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _info(tensor: GgufTensor) -> TensorInfo:
    return TensorInfo(shape=tensor.shape, dtype=tensor.type.name, nbytes=tensor.nbytes)
