"""How long `etcli --help` takes, against an interpreter that does nothing: at most ten times as long. And `etcli doctor`: at most a second."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from harness import Row, arguments, compare, publish, wall_seconds

DOCTOR_SECONDS = 1.0


def doctor_row(runs: int) -> Row:
    """The default recipe's `doctor`, which looks at everything, after one that may still have to compile the virtual device's first process."""
    seconds = [_doctor_seconds() for _ in range(runs + 1)][1:]
    median = statistics.median(seconds)
    ratio = DOCTOR_SECONDS / median
    note = f"fastest {min(seconds):.2f} s; the peer is the second that a person waits gladly"
    return Row("etcli doctor / one second", median, DOCTOR_SECONDS, "s", ratio, 1.0, ratio >= 1.0, note)


def _doctor_seconds() -> float:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "etcli", "doctor"],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    seconds = time.perf_counter() - start
    if done.returncode not in (0, 3):  # 3: something is missing, which takes no longer to find
        raise RuntimeError(f"doctor ended with {done.returncode}: {done.stderr}")
    return seconds


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__ or "")
    pairs = 11 if options.quick else 31
    row = compare(
        "etcli --help / python -c pass",
        lambda: wall_seconds([sys.executable, "-m", "etcli", "--help"]),
        lambda: wall_seconds([sys.executable, "-c", "pass"]),
        unit="s",
        bar=0.1,
        pairs=pairs,
        note="ratio 0.1 is ten times the peer's time",
    )
    return publish("cli_startup", [row, doctor_row(5 if options.quick else 15)], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
