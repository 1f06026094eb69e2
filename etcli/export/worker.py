"""The export worker: `python -m etcli.export.worker`, which does one job after the other.

Each line of its stdin is a folder with `job.json`. The worker writes its files and `outcome.json` there and prints the line `@done`, or
`@last` where it ends then; or it writes `troubles.json` and ends with a non-zero exit. Importing torch costs as much as making a chunk of
a template, so a worker lives for many jobs; one that has lowered, or has grown for other reasons, ends after its job, and its memory with
it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from etcli.common.errors import EtcliError, ExportError
from etcli.common.files import is_no_space
from etcli.common.memory import is_out_of_memory
from etcli.common.process import end_with_parent
from etcli.export.job import (
    DONE_MARK,
    LAST_MARK,
    CalibrationWork,
    Job,
    LowerWork,
    QuantiseWork,
    TablesWork,
    Trouble,
    Troubles,
)

KEPT_BYTES = 512 << 20
"""A worker that holds more than this after a job is replaced: torch and the runtime take half of it."""


def command(python: Path | None = None) -> list[str]:
    """The argument list that starts a worker, in this interpreter or in another."""
    return [sys.executable if python is None else str(python), "-W", "ignore", "-m", "etcli.export.worker"]


def main() -> int:
    """Do jobs until there are no more; return the exit status."""
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        job = Job.read(folder / Job.FILE)
        end_with_parent(job.parent)
        status = _do(job, folder)
        if status:
            return status
        worn = _worn()
        print(LAST_MARK if worn else DONE_MARK, flush=True)
        if worn:
            break
    return 0


def _worn() -> bool:
    """Whether a fresh process is better than this one."""
    from etcli.export.measure import forget_peak, give_back, resident_bytes

    if (
        "executorch.exir" in sys.modules
    ):  # it keeps hundreds of megabytes, and numbers graphs from where the last one ended
        return True
    give_back()
    forget_peak()
    return resident_bytes() > KEPT_BYTES


def _do(job: Job, folder: Path) -> int:
    try:
        _work(job, folder)
    except EtcliError as error:
        return _give_up(folder, error)
    except Exception as error:
        if is_out_of_memory(error):
            return _give_up(folder, _out_of_memory(error))
        if not is_no_space(error):
            raise
        return _give_up(
            folder,
            ExportError(
                f"no space left while writing into {folder.parent}",
                code="export.no_space",
                hint="Free some space, or put the workspace on another disk (--workspace). Finished chunks are kept.",
            ),
        )
    return 0


def _work(job: Job, folder: Path) -> None:
    if isinstance(job.work, TablesWork):
        from etcli.export.tables import write_tables

        write_tables(job, job.work, folder)
    elif isinstance(job.work, LowerWork):
        from etcli.export.lowering import lower_chunk

        lower_chunk(job, job.work, folder)
    elif isinstance(job.work, CalibrationWork):
        from etcli.export.neuron.calibration import calibrate

        calibrate(job, job.work, folder)
    elif isinstance(job.work, QuantiseWork):
        from etcli.export.neuron.quantising import quantise_chunk

        quantise_chunk(job, job.work, folder)
    elif job.work.npu is not None:
        from etcli.export.neuron.making import make_compiled_chunk

        make_compiled_chunk(job, job.work, folder)
    else:
        from etcli.export.making import make_chunk

        make_chunk(job, job.work, folder)


def _out_of_memory(error: Exception) -> ExportError:
    said = str(error).splitlines()[0] if str(error) else "no more can be allocated"
    return ExportError(
        f"memory ran out: {said}",
        code="export.out_of_memory",
        hint="Use shapes of fewer tokens or shorter caches (export.shapes), more chunks (export.chunks), or one worker (--jobs 1).",
    )


def _give_up(folder: Path, error: EtcliError) -> int:
    Troubles(problems=tuple(Trouble.of(problem) for problem in error.problems)).write(folder / Troubles.FILE)
    return int(error.exit)


if __name__ == "__main__":
    sys.exit(main())
