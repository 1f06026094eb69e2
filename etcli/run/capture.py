"""The folder of one run in the workspace: every line the runner printed, its stderr, and the record."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from typing import TextIO

from etcli.common.errors import RunError
from etcli.common.files import write_atomically
from etcli.manifests.run_record import ConversationRecord, RunRecord

EVENTS = "events.jsonl"
STDERR = "stderr.txt"
LOGCAT = "logcat.txt"
RECORD = "record.json"

_MOST_BYTES = 64 << 20


class Capture:
    """Keeps what a run gave. A context: leaving it closes the files.

    Lines are written as they come, so that a run that ends badly leaves everything up to its end.
    """

    def __init__(self, runs: Path) -> None:
        self.folder = _new_folder(runs)
        self._events: TextIO = (self.folder / EVENTS).open("w", encoding="utf-8", buffering=1)
        self._bytes = 0

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()

    def line(self, text: str) -> None:
        """Keep a line of stdout.

        Raises:
            RunError: the program printed more than any run has to say.
        """
        self._bytes += len(text) + 1
        if self._bytes > _MOST_BYTES:
            raise RunError(
                f"the program printed more than {_MOST_BYTES >> 20} MiB and was ended",
                code="run.too_much_output",
                hint="The beginning of it is in the file.",
                file=self.folder / EVENTS,
            )
        self._events.write(text + "\n")

    def text(self, name: str, content: str) -> None:
        """Keep a whole text under `name`."""
        write_atomically(self.folder / name, content)

    def record(self, record: RunRecord | ConversationRecord) -> None:
        """Keep the record."""
        record.write(self.folder / RECORD)


def _new_folder(runs: Path) -> Path:
    while True:
        folder = runs / datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        with contextlib.suppress(FileExistsError):  # runs on several devices may begin in the same microsecond
            folder.mkdir(parents=True)
            return folder
