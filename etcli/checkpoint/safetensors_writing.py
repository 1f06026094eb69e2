"""A safetensors file written one tensor at a time, so that no more than one is in memory.

The library's own writer wants all of them at once. Format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from etcli.common.files import atomic_writer

Values = npt.NDArray[np.int8] | npt.NDArray[np.float16]

_NAMES = {"float16": "F16", "int8": "I8"}
_ALIGNMENT = 8


def write_safetensors(
    path: Path,
    layout: Mapping[str, tuple[str, tuple[int, ...]]],
    read: Callable[[str], Values],
    metadata: Mapping[str, str],
) -> None:
    """Replace `path` by a file with the tensors of `layout`, in its order.

    Args:
        layout: type (`float16` or `int8`) and shape of each tensor by name.
        read: gives a tensor's values when it is their turn.

    Raises:
        ValueError: what `read` gives is of another type or shape than `layout` says.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in layout.items():
        size = math.prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with atomic_writer(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (dtype, shape) in layout.items():
            values = np.ascontiguousarray(read(name))
            if values.dtype != dtype or values.shape != shape:
                raise ValueError(f"{name} is {values.dtype} {values.shape}, not {dtype} {shape}")
            file.write(values.reshape(-1).view(np.uint8).data)
