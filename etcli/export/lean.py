"""Lowering without copies that nobody looks at. Runs in a worker, around one lowering; the file's bytes are the same with and without.

ExecuTorch 1.5.1 deep-copies each partition's weights and keeps their bytes once more for every method: five times a chunk's weights in
all for two methods. Frozen parameters are never written to while lowering, so here a copy of one is itself; and blobs for the file's
named data go to disk as they come, once each, which ExecuTorch's store allows (`FileBackedData`), and so do constants outside
delegates, such as AQLM's codes, of which the emitter would keep a copy until the file is written. What the worker then holds is the
eager chunk alone.

PyTorch 2.13 keeps for each node where it came from, and copies that history, longer with every pass, each time a pass touches the node.
Sharing it saves a tenth of the time, and keeping the garbage collector from walking all graphs over and over another fifth.

XNNPACK's compiler runs 17 passes over each partition, and most of them trace it anew even where there is nothing for them to do. Leaving out
those whose operators the partition lacks halves the time of a chunk with ring caches, which has a partition more than layers.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

KNOWN = {"executorch": "1.5.1", "torch": "2.13.0"}
"""The versions whose insides are known; with others nothing is changed, and lowering takes what it takes."""

IDLE_WITHOUT: Mapping[str, tuple[str, ...]] = {
    "XNNPACKRemoveCloneOpsTransform": ("clone",),
    "DimOrderOpsRevertPass": ("dim_order",),
    "ConvertToUpsampleBilinear2d": ("index", "upsample"),
    "ConvertToSDPAPass": ("softmax",),
    "FuseBatchNormPass": ("batch_norm",),
    "DecomposeBatchNorm": ("batch_norm",),
    "FuseActivationPass": ("relu", "hardtanh"),
    "DecomposeConcatenate": ("cat",),
    "RemoveGetItemPass": ("max",),
    "InsertPadQDQPass": ("pad",),
    "Conv1dUnsqueezePass": ("convolution",),
    "PReLUReshapePass": ("prelu",),
    "RemoveRedundantCopyPass": ("_to_copy",),
}
"""Passes of XNNPACK's compiler, each with words of which an operator's name must hold one for the pass to change anything."""

SMALL = 1 << 16
"""Blobs of fewer bytes stay in memory."""


@contextlib.contextmanager
def lean_lowering(folder: Path) -> Iterator[None]:
    """Within the block, copies of frozen parameters and of node histories are the original, named data and constants are kept in files below
    `folder`, and XNNPACK's compiler leaves out idle passes.

    The program must be written to its file before `folder` is removed.
    """
    if not known_versions():
        yield
        return
    import torch
    from executorch.backends.xnnpack._passes import XNNPACKPassManager
    from executorch.exir._serialize._cord import FileBackedData
    from executorch.exir._serialize._named_data_store import NamedDataStore
    from executorch.exir.emit._emitter import _Emitter
    from torch.fx.traceback import NodeSource

    copy_parameter: Any = torch.nn.Parameter.__deepcopy__
    add: Any = NamedDataStore.add_named_data
    save: Any = _Emitter._save_new_const_tensor
    transform: Any = XNNPACKPassManager.transform
    kept: dict[bytes, Any] = {}

    def share(self: torch.nn.Parameter, memo: dict[int, Any]) -> Any:
        return copy_parameter(self, memo) if self.requires_grad else self

    def on_disk(data: Any) -> Any:
        if not isinstance(data, bytes) or len(data) < SMALL:
            return data
        digest = hashlib.sha256(data).digest()
        if digest not in kept:
            path = folder / digest.hex()
            path.write_bytes(data)
            kept[digest] = FileBackedData(str(path), sha256=digest)
        return kept[digest]

    def add_from_disk(self: Any, key: str, data: Any, *rest: Any, **named: Any) -> None:
        add(self, key, on_disk(data), *rest, **named)

    def save_from_disk(self: Any, spec: Any, data: bytes, *rest: Any) -> Any:
        return save(self, spec, on_disk(data), *rest)

    def transform_where_needed(self: Any) -> Any:
        self.passes = _needed_passes(self.passes, self.exported_program.graph)
        return transform(self)

    with (
        _replaced(torch.nn.Parameter, "__deepcopy__", share),
        _replaced(NodeSource, "__deepcopy__", lambda self, _: self),
        _replaced(NamedDataStore, "add_named_data", add_from_disk),
        _replaced(_Emitter, "_save_new_const_tensor", save_from_disk),
        _replaced(XNNPACKPassManager, "transform", transform_where_needed),
        _resting_collector(),
    ):
        yield


def known_versions() -> bool:
    """Whether ExecuTorch and PyTorch are the versions that this module was written for; builds of one version (`+cpu`) are the same."""
    return all(importlib.metadata.version(name).partition("+")[0] == known for name, known in KNOWN.items())


def _needed_passes(passes: Sequence[type], graph: Any) -> list[type]:
    operators = {getattr(node.target, "__name__", "") for node in graph.nodes if node.op == "call_function"}

    def is_idle(kind: type) -> bool:
        words = IDLE_WITHOUT.get(kind.__name__)
        return words is not None and not any(word in name for name in operators for word in words)

    return [kind for kind in passes if not is_idle(kind)]


@contextlib.contextmanager
def _replaced(owner: type, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextlib.contextmanager
def _resting_collector() -> Iterator[None]:
    """What is alive now is not looked at again, and collections are rare."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def renamed(manager: Any, names: Mapping[str, str]) -> Any:
    """The program of an `ExecutorchProgramManager` with methods renamed, serialised anew as a `Cord`.

    Emission takes names as they are, so this is what lowering under the new names would give, provided that they sort as the old ones do.
    """
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir._serialize._serialize import serialize_for_executorch

    output = manager._emitter_output  # the program before its data are taken apart, which nothing public gives
    for plan in output.program.execution_plan:
        plan.name = names.get(plan.name, plan.name)
    try:
        cord, _ = serialize_for_executorch(
            output, ExecutorchBackendConfig(), manager._data_serializer, manager._named_data
        )
    finally:
        before = {new: old for old, new in names.items()}
        for plan in output.program.execution_plan:
            plan.name = before.get(plan.name, plan.name)
    return cord
