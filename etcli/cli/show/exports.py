"""What `export` did or would do, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etcli.output.console import Console
from etcli.output.units import bytes_text, counted, estimate_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etcli.export.result import ExportedFile, PlannedWork
    from etcli.export.stage import ExportResult


def exported(console: Console, result: ExportResult) -> None:
    """The files of the bundle, or the plan."""
    if result.dry_run or result.manifest is None:
        if result.work is not None:
            _planned(console, result.folder, result.work)
            if result.quantising is not None:
                needs = result.quantising
                console.print(
                    f"before that, model.quantize takes about {estimate_text(needs.seconds)}, once, with up to "
                    f"{bytes_text(needs.memory_bytes)} of memory and {bytes_text(needs.disk_bytes)} in the cache"
                )
            if result.current:
                console.print(f"{result.folder} is current", style="green")
        if result.missing_chunks:
            total = "" if result.plan is None else f" of {len(result.plan.chunks)}"
            names = ", ".join(f"chunk {index}" for index in result.missing_chunks)
            console.print(f"{len(result.missing_chunks)}{total} chunks are still to be exported: {names}")
        return
    bundle_table(console, result.folder, result.files)
    _quality(console, result)
    console.print(
        f"{result.folder} is current" if result.current else f"exported in {seconds_text(result.seconds)}",
        style="green",
    )


def bundle_table(console: Console, folder: Path | str, files: Sequence[ExportedFile]) -> None:
    """Every file of a bundle, with what it is for."""
    rows = [(file.path, bytes_text(file.size), file.sha256[:12], file.role) for file in files]
    console.table(f"Bundle {folder}", ("file", "size", "sha256", "role"), rows)


def _quality(console: Console, result: ExportResult) -> None:
    """What quantising cost: each chunk's error against float32, and the evaluation where there was one."""
    lossy = [(chunk, max(chunk.float_errors.values())) for chunk in result.chunks if chunk.float_errors]
    if lossy:
        # with one file a method, a chunk has several programs
        several = len({chunk.index for chunk, _ in lossy}) < len(lossy)
        rows = [(chunk.file if several else chunk.index, f"{error:.3%}") for chunk, error in lossy]
        what = "program" if several else "chunk"
        # of AQLM's codes, which are exported as they are, there is none
        of_head = result.manifest is not None and result.manifest.precision == "aqlm"
        title = f"Error{' of the head' if of_head else ''} against float32 on random inputs"
        console.table(title, (what, "root mean square"), rows)
        answers = "the evaluation does" if result.evaluation is not None else "etcli export --evaluate does"
        console.print(f"This compares single products on random inputs and does not measure answers; {answers}.")
    found = result.evaluation
    if found is not None:
        figures = [
            ("perplexity, float32", f"{found.perplexity_float:.3f}"),
            ("perplexity, as exported", f"{found.perplexity:.3f}"),
            ("same first choice", f"{found.top1_agreement:.1%}"),
            ("mean divergence (KL)", f"{found.mean_kl:.3g} nats"),
        ]
        if found.chunk_errors:
            errors = ", ".join(f"{error:.1%}" for error in found.chunk_errors)
            figures.append(("error of each chunk on its own", errors))
        console.table(f"Evaluation over {counted(found.positions, 'position')}", ("what", "value"), figures)


def _planned(console: Console, folder: Path, work: PlannedWork) -> None:
    rows = [
        (
            program.file,
            f"{program.layers[0]}-{program.layers[1]}",
            " ".join(name.split("_")[-2] for name in program.methods),  # NAME_<T>t<C>c_CHUNK
            bytes_text(program.bytes),
            bytes_text(program.memory_bytes) if program.memory_bytes else "-",
            program.state,
        )
        for program in work.programs
    ]
    console.table(f"Plan for {folder}", ("file", "layers", "shapes", "size", "memory", "how"), rows)
    tables = "there" if work.tables_there else "to be written"
    console.print(f"embedding and rope table: {bytes_text(work.tables_bytes)}, {tables}")
    console.print(
        f"{counted(work.jobs, 'worker')} at once, up to {bytes_text(work.memory_bytes)} of memory together; "
        f"up to {bytes_text(work.disk_bytes)} on the disk"
    )
