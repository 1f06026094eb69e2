"""The memory of the runner's process while it runs, read from the device's /proc: no root is needed for a process of one's own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from etcli.common.errors import EtcliError
from etcli.device.base import Device
from etcli.device.shelltext import script
from etcli.manifests.bench import MemorySample, MemoryTrace
from etcli.run.events import AnyEvent, Loaded, Start, Token

_SECONDS_BETWEEN = "0.05"
_MOST_SAMPLES = 1000
_END_SECONDS = 3.0

# $1 is the process, $2 the time between two looks, for a sleep that knows only whole seconds 1. Ends with the process: one that has ended
# has no file, or no VmRSS while nobody has asked for its status.
_WATCH = """
while :; do
  resident=
  { while read -r key value unit; do
    case $key in VmRSS:) resident=$value; break;; esac
  done < "/proc/$1/status"; } 2>/dev/null
  [ -n "$resident" ] || exit 0
  echo "$resident"
  sleep "$2" 2>/dev/null || sleep 1
done
"""


class MemoryWatch:
    """Watches one run from its `start` event on, in a connection of its own. A runner that does not tell its process is not watched."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._samples: list[MemorySample] = []
        self._thread: threading.Thread | None = None
        self._close: Callable[[], None] | None = None
        self._stopped = threading.Event()
        self._start = 0.0
        self._marks: dict[str, float] = {}

    def take(self, event: AnyEvent) -> None:
        """One event of the run, as it comes."""
        if isinstance(event, Start):
            self._start = time.monotonic()
            if event.pid:
                self._thread = threading.Thread(target=self._read, args=(str(event.pid),), daemon=True)
                self._thread.start()
        elif isinstance(event, Loaded):
            self._mark("loaded_s")
        elif isinstance(event, Token):
            self._mark("first_token_s")

    def trace(self) -> MemoryTrace:
        """What was seen. Call it when the run has ended."""
        if self._thread is None:
            return MemoryTrace()
        self._mark("ended_s")
        self._thread.join(_END_SECONDS)  # the script sees for itself that the process is gone
        self.stop()
        return MemoryTrace(samples=thinned(self._samples), **self._marks)

    def stop(self) -> None:
        """End the watch on the device, whatever the run does."""
        self._stopped.set()
        if self._close is not None:
            with contextlib.suppress(EtcliError, OSError):
                self._close()

    def _mark(self, name: str) -> None:
        self._marks.setdefault(name, time.monotonic() - self._start)

    def _read(self, pid: str) -> None:
        with (
            contextlib.suppress(EtcliError, OSError),
            self._device.open(script(_WATCH, pid, _SECONDS_BETWEEN)) as stream,
        ):
            self._close = stream.close
            for line in stream.lines():
                if self._stopped.is_set():
                    break
                if line.isdigit() and len(line) < 16:
                    seconds = time.monotonic() - self._start
                    self._samples.append(MemorySample(t_s=seconds, resident_bytes=int(line) * 1024))


@contextlib.contextmanager
def watching(device: Device) -> Iterator[MemoryWatch]:
    """A watch that has ended when the block has."""
    watch = MemoryWatch(device)
    try:
        yield watch
    finally:
        watch.stop()


def thinned(samples: Sequence[MemorySample], most: int = _MOST_SAMPLES) -> tuple[MemorySample, ...]:
    """At most `most` of them, of neighbours the highest, so that no peak is lost."""
    together = -(-len(samples) // most) or 1
    groups = (samples[start : start + together] for start in range(0, len(samples), together))
    return tuple(max(group, key=lambda sample: sample.resident_bytes) for group in groups)
