"""Lowering without a copy of the weights for every method and step. Runs in a worker, around one lowering.

ExecuTorch 1.5.1 deep-copies each partition's weights and keeps their bytes once more for every method: five times a chunk's weights in
all for two methods. Frozen parameters are never written to while lowering, so here a copy of one is itself; and blobs for the file's
named data go to disk as they come, once each, which ExecuTorch's store allows (`FileBackedData`). What the worker then holds is the
eager chunk alone. The file's bytes are the same with and without.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SMALL = 1 << 16
"""Blobs of fewer bytes stay in memory."""


@contextlib.contextmanager
def weights_held_once(folder: Path) -> Iterator[None]:
    """Within the block, copies of frozen parameters share their memory, and named data is kept in files below `folder`.

    The program must be written to its file before `folder` is removed.
    """
    import torch
    from executorch.exir._serialize._cord import FileBackedData
    from executorch.exir._serialize._named_data_store import NamedDataStore

    parameter: Any = torch.nn.Parameter
    copy_parameter = parameter.__deepcopy__
    add: Any = NamedDataStore.add_named_data
    kept: dict[bytes, Any] = {}

    def share(self: torch.nn.Parameter, memo: dict[int, Any]) -> Any:
        return copy_parameter(self, memo) if self.requires_grad else self

    def add_from_disk(self: Any, key: str, data: Any, *rest: Any, **named: Any) -> None:
        if isinstance(data, bytes) and len(data) >= SMALL:
            digest = hashlib.sha256(data).digest()
            if digest not in kept:
                path = folder / digest.hex()
                path.write_bytes(data)
                kept[digest] = FileBackedData(str(path), sha256=digest)
            data = kept[digest]
        add(self, key, data, *rest, **named)

    parameter.__deepcopy__ = share
    NamedDataStore.add_named_data = add_from_disk
    try:
        yield
    finally:
        parameter.__deepcopy__ = copy_parameter
        NamedDataStore.add_named_data = add
