"""How long `etcli --help` takes, against an interpreter that does nothing: at most ten times as long."""

from __future__ import annotations

import sys

from harness import arguments, compare, publish, wall_seconds


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
    return publish("cli_startup", [row], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
