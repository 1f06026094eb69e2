"""What an output was made from, as hashes: equal hashes mean equal bytes, so what is there need not be made again."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import etcli
from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import EMBEDDING
from etcli.common.hashing import file_sha256, value_sha256
from etcli.export.operators import kept_linears
from etcli.export.plan import ChunkPlan, ExportPlan, ProgramPlan
from etcli.export.store import Store
from etcli.manifests.model import ModelConfig
from etcli.output.console import Console
from etcli.recipe.fingerprint import export_fingerprint
from etcli.recipe.loaded import LoadedRecipe

_GRAPH_CODE = (
    "export/backends/*.py",
    "export/lean.py",
    "export/lowering.py",
    "export/quantizers/*.py",
    "export/templates/*.py",
    "llama/**/*.py",
    "ops/**/*.py",
)
"""Whose code decides what a graph is lowered to."""

_PROGRAM_CODE = (
    *_GRAPH_CODE,
    "checkpoint/**/*.py",
    "common/gguf_*.py",
    "export/contract.py",
    "export/making.py",
    "export/samples.py",
    "export/tables.py",
    "export/verification.py",
)
"""Whose code decides the bytes of chunks and tables, and whether they are good.

The kernels in `native/`, which verification runs, are not of it: no byte of a bundle depends on them, and a device runs its own build of
them. They are held to the eager operators, which are of it, by tests of their own.
"""

_NOT_IN_GRAPHS = {
    "aqlm",
    "architecture",
    "bos_id",
    "context_length",
    "num_layers",
    "rope",
    "sliding_window",
    "stop_ids",
    "tied_embeddings",
}
"""Numbers of a network that change what goes into a chunk, or what is done with its answers, but not its graph (`aqlm`: see `_coding`)."""

_NPU_CODE = (*_PROGRAM_CODE, "export/neuron/*.py", "export/simulated_sdk/**/*.py", "recipe/neuron.py")
"""Whose code decides what chunks for the NPU are."""

_CALIBRATION_CODE = (
    "checkpoint/**/*.py",
    "common/gguf_*.py",
    "export/neuron/calibration.py",
    "export/neuron/records.py",
    "llama/**/*.py",
)
"""Whose code decides what the records of the calibration are."""

_QUANTISED_CODE = (
    *_CALIBRATION_CODE,
    "export/neuron/graph_file.py",
    "export/neuron/quantising.py",
    "export/neuron/stored_weights.py",
    "export/samples.py",
)
"""Whose code decides what quantised graphs are."""

_BUNDLE_CODE = (*_NPU_CODE, "export/assembly.py", "export/runner_config.py", "tokenizer/**/*.py")
"""Whose code decides the bytes of the whole bundle."""


TABLES = "tables"
"""The piece with embedding and rope table, where the others go by their program's place in the bundle."""

CALIBRATION = "calibration"
"""The piece with the records that activations for the NPU are measured on. It is none of the bundle's."""


_LIBRARIES = ("gguf", "tokenizers", "torchao")
"""Packages that the manifest does not name and whose versions decide bytes too: they read weights, write tokenizers and quantise."""


def tool_versions() -> dict[str, str]:
    """Versions of what writes the bundle, as its manifest names them."""
    return {
        "etcli": etcli.__version__,
        "executorch": importlib.metadata.version("executorch"),
        "torch": importlib.metadata.version("torch"),
    }


def all_versions() -> dict[str, str]:
    """Versions of all that decides bytes."""
    return {**tool_versions(), **{name: importlib.metadata.version(name) for name in _LIBRARIES}}


@functools.cache
def code_sha256(patterns: tuple[str, ...]) -> str:
    """Hash over the code that decides what is written: an etcli changed in place counts as another version."""
    root = Path(etcli.__file__).parent
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def program_code_sha256() -> str:
    """Hash over the code that decides the bytes of chunks and tables."""
    return code_sha256(_PROGRAM_CODE)


def tensor_hashes(checkpoint: Checkpoint, console: Console) -> dict[str, str]:
    """Hash of every tensor by canonical name."""
    total = sum(info.nbytes for info in checkpoint.tensors.values())
    found = {}
    with console.progress("hashing tensors", total, bytes_=True) as done:
        for name, info in checkpoint.tensors.items():
            found[name] = checkpoint.sha256(name)
            done(info.nbytes)
    return found


def recipe_inputs_sha256(loaded: LoadedRecipe) -> str:
    """Hash over the recipe's keys that export reads, and over the calibration file where it names one."""
    neuron = loaded.recipe.neuron
    fingerprint = export_fingerprint(loaded.recipe)
    if neuron is None or neuron.calibration is None or neuron.calibration.file is None:
        return fingerprint
    return value_sha256([fingerprint, file_sha256(loaded.resolve_path(neuron.calibration.file))])


def inputs_sha256(recipe_sha256: str, tensors_sha256: str) -> str:
    """The bundle's `inputs_sha256`: the recipe's resolved keys, the tensors and the versions."""
    return value_sha256(
        {
            "recipe": recipe_sha256,
            "tensors": tensors_sha256,
            "versions": all_versions(),
            "code": code_sha256(_BUNDLE_CODE),
        }
    )


def graph_key(plan: ExportPlan, chunk: ChunkPlan, program: ProgramPlan, config: ModelConfig) -> str:
    """What a program's graph is made from: all but weights and names. Programs of one key differ in these alone."""
    return value_sha256(
        {
            "backend": plan.backend,
            "precision": plan.precision.model_dump(mode="json"),
            "cache": plan.cache,
            "layers": chunk.layers,
            "head": chunk.head,
            "shapes": [str(method.shape) for method in program.methods],
            "config": config.model_dump(mode="json", exclude=_NOT_IN_GRAPHS),
            "aqlm": _coding(chunk, config),
            "versions": all_versions(),
            "code": code_sha256(_GRAPH_CODE),
        }
    )


def _coding(chunk: ChunkPlan, config: ModelConfig) -> dict[str, Any] | None:
    """What AQLM does to the graph: which linears are its operators, the layers numbered within the chunk."""
    if config.aqlm is None:
        return None
    kept = kept_linears(config.aqlm, chunk.first_layer, chunk.layers)
    return {"codebooks": config.aqlm.codebooks, "kept": sorted(kept)}


def program_key(
    plan: ExportPlan,
    chunk: ChunkPlan,
    program: ProgramPlan,
    config: ModelConfig,
    tensors: Mapping[str, str],
    *,
    verified: bool,
) -> str:
    """What a program is made from, and whether it was compared with eager PyTorch."""
    return value_sha256(
        {
            "graph": graph_key(plan, chunk, program, config),
            "code": code_sha256(_PROGRAM_CODE),
            "rope": config.rope.model_dump(mode="json"),
            "first_layer": chunk.first_layer,
            "names": [method.name for method in program.methods],
            "tensors": {name: tensors[name] for name in chunk.tensors},
            "verified": verified,
            **_npu(plan, chunk, config, tensors),
        }
    )


def _npu(plan: ExportPlan, chunk: ChunkPlan, config: ModelConfig, tensors: Mapping[str, str]) -> dict[str, Any]:
    """What programs for the NPU are made from besides."""
    if plan.npu is None:
        return {}
    return {
        "npu": plan.npu.settings.model_dump(mode="json"),
        "quantised": reference_key(plan, chunk, config, tensors),
        "npu_code": code_sha256(_NPU_CODE),
        "index": chunk.index,
    }


def calibration_key(plan: ExportPlan, config: ModelConfig, tensors: Mapping[str, str]) -> str:
    """What the records are made from: the network and the prompts. The network answers, so all its tensors count."""
    return value_sha256(
        {
            "prompts": None if plan.npu is None else plan.npu.calibration(),
            "shapes": [str(shape) for shape in plan.shapes],
            "layers": plan.chunks[0].layers,
            "config": config.model_dump(mode="json"),
            "tensors": dict(tensors),
            "versions": all_versions(),
            "code": code_sha256(_CALIBRATION_CODE),
        }
    )


def reference_key(plan: ExportPlan, chunk: ChunkPlan, config: ModelConfig, tensors: Mapping[str, str]) -> str:
    """What a chunk's quantised graph is made from."""
    return value_sha256(
        {
            "calibration": calibration_key(plan, config, tensors),
            "precision": plan.precision.model_dump(mode="json"),
            "first_layer": chunk.first_layer,
            "layers": chunk.layers,
            "head": chunk.head,
            "simulated": plan.npu is not None and plan.npu.settings.simulated,
            "shapes": [str(shape) for shape in plan.shapes],
            "code": code_sha256(_QUANTISED_CODE),
        }
    )


def tables_key(plan: ExportPlan, config: ModelConfig, tensors: Mapping[str, str]) -> str:
    """What embedding and rope table are made from."""
    return value_sha256(
        {
            "embedding": tensors[EMBEDDING],
            "format": plan.embedding.model_dump(mode="json"),
            "positions": plan.positions,
            "rope": config.rope.model_dump(mode="json"),
            "head_dim": config.head_dim,
            "versions": all_versions(),
            "code": code_sha256(_PROGRAM_CODE),
        }
    )


def piece_keys(
    plan: ExportPlan,
    config: ModelConfig,
    tensors: Mapping[str, str],
    store: Store,
    *,
    verify: bool,
    remade: Collection[str] = (),
) -> dict[str, str]:
    """Keys of all pieces, by program file and `TABLES`.

    Where no verification is asked for, a whole verified piece serves as well, unless its program is one of `remade`.
    """
    keys = {TABLES: tables_key(plan, config, tensors)}
    if plan.npu is not None:
        keys[CALIBRATION] = calibration_key(plan, config, tensors)
        keys.update({chunk.reference: reference_key(plan, chunk, config, tensors) for chunk in plan.chunks})
    for chunk in plan.chunks:
        for program in chunk.programs:
            key = program_key(plan, chunk, program, config, tensors, verified=True)
            if not verify and (program.file in remade or not store.is_whole(key)):
                key = program_key(plan, chunk, program, config, tensors, verified=False)
            keys[program.file] = key
    return keys


def remade_pieces(plan: ExportPlan, only_chunks: tuple[int, ...] | None) -> set[str]:
    """What `--force` makes again: the programs of the chunks named, or everything."""
    again = {chunk.index for chunk in plan.chunks if only_chunks is None or chunk.index in only_chunks}
    found = {program.file for program in plan.programs if program.chunk in again}
    if plan.npu is not None:
        found |= {chunk.reference for chunk in plan.chunks if chunk.index in again}
    if only_chunks is None:
        found |= {TABLES} if plan.npu is None else {TABLES, CALIBRATION}
    return found
