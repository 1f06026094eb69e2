"""What is to be done for a bundle for the NPU: the calibration, then each chunk's graph, then each program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from etcli.export.backends.base import Backend, tolerance
from etcli.export.estimates import calibration_bytes, lowering_bytes, quantising_bytes
from etcli.export.inputs import CALIBRATION
from etcli.export.job import CalibrationWork, ChunkWork, QuantiseWork
from etcli.export.plan import ChunkPlan, ExportPlan
from etcli.export.pool import Task
from etcli.export.store import Store
from etcli.manifests.model import ModelConfig


def npu_tasks(
    plan: ExportPlan,
    config: ModelConfig,
    backend: Backend,
    keys: Mapping[str, str],
    missing: Mapping[str, str],
    store: Store,
    work: Path,
    *,
    verify: bool,
) -> list[Task]:
    """Tasks for the pieces `missing`; `keys` are those of all pieces, by place."""
    npu = plan.npu
    assert npu is not None  # noqa: S101 - only a plan for the NPU comes here
    records, logs = store.piece(keys[CALIBRATION]), work / "logs"
    tasks = []
    if CALIBRATION in missing:
        calibration = CalibrationWork(
            prompts=npu.prompts,
            response_cap=npu.response_cap,
            shapes=plan.shapes,
            layers=plan.chunks[0].layers,
            stop_ids=config.stop_ids,
        )
        memory = calibration_bytes(plan, config)
        tasks.append(Task(keys[CALIBRATION], "the calibration", calibration, memory, logs / "calibration.log"))
    for chunk in plan.chunks:
        if chunk.reference not in missing:
            continue
        quantise = QuantiseWork(
            **_network(plan, backend, chunk),
            methods=tuple(method for program in chunk.programs for method in program.methods),
            npu=npu.settings,
            records=str(records),
        )
        memory = quantising_bytes(plan, chunk, config)
        log = logs / f"quantise_{chunk.index}.log"
        after = (keys[CALIBRATION],) if CALIBRATION in missing else ()
        tasks.append(
            Task(keys[chunk.reference], f"the quantised graph of chunk {chunk.index}", quantise, memory, log, after)
        )
    for chunk in plan.chunks:
        for program in chunk.programs:
            if program.file not in missing:
                continue
            compile_work = ChunkWork(
                **_network(plan, backend, chunk),
                methods=program.methods,
                tolerance=tolerance(backend, plan.precision),
                verify=verify,
                npu=npu.settings,
                quantised=str(store.piece(keys[chunk.reference])),
                records=str(records),
            )
            shape = "" if npu.settings.shared else f"_{program.methods[0].shape}"
            title = f"chunk {chunk.index}" + (f" ({program.methods[0].shape})" if shape else "")
            after = (keys[chunk.reference],) if chunk.reference in missing else ()
            memory = lowering_bytes(plan, chunk, program, config)
            log = logs / f"chunk_{chunk.index}{shape}.log"
            tasks.append(Task(keys[program.file], title, compile_work, memory, log, after))
    return tasks


def _network(plan: ExportPlan, backend: Backend, chunk: ChunkPlan) -> dict[str, object]:
    return {
        "index": chunk.index,
        "first_layer": chunk.first_layer,
        "layers": chunk.layers,
        "head": chunk.head,
        "backend": backend.name,
        "cache": plan.cache,
        "precision": plan.precision,
    }
