"""The export worker: `python -m etcli.export.worker FOLDER`, where FOLDER holds `job.json`.

It writes its files and `outcome.json` into FOLDER, or `troubles.json` and a non-zero exit. A chunk is done in two processes one after the
other in the same place: the first lowers, then becomes (exec) the second, which runs the program that was written. So the memory of the
one is gone when the other starts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from etcli.common.errors import EtcliError, ExportError
from etcli.common.files import is_no_space
from etcli.common.memory import is_out_of_memory
from etcli.common.process import end_with_parent
from etcli.export.job import Job, TablesWork, Trouble, Troubles

VERIFY = "--verify"


def command(folder: Path, *, verify: bool = False) -> list[str]:
    """The argument list that runs the job in `folder`."""
    return [sys.executable, "-W", "ignore", "-m", "etcli.export.worker", str(folder), *([VERIFY] if verify else [])]


def main(arguments: list[str]) -> int:
    """Do the job; return the exit status."""
    folder, verify = Path(arguments[0]), VERIFY in arguments[1:]
    job = Job.read(folder / Job.FILE)
    end_with_parent(job.parent)
    try:
        _work(job, folder, verify=verify)
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


def _work(job: Job, folder: Path, *, verify: bool) -> None:
    if isinstance(job.work, TablesWork):
        from etcli.export.tables import write_tables

        write_tables(job, job.work, folder)
    elif verify:
        from etcli.export.verification import verify_chunk

        verify_chunk(job, job.work, folder)
    else:
        from etcli.export.lowering import lower_chunk

        lower_chunk(job, job.work, folder)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, command(folder, verify=True))  # noqa: S606 - replaces this process by design


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
    sys.exit(main(sys.argv[1:]))
