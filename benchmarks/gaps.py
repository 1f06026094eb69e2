"""The gaps that `smoke` allows (`GAPS` in etcli/verbs/comparison.py): how far the runner's tokens lie below the reference's best.

The default model is exported in each precision, and the native runner continues texts on a virtual device of this machine's kind until
`POSITIONS` tokens are compared with the reference, as `etcli smoke` does it. Ours is the largest gap found, the peer the one allowed, which
must be at least twice as large: other CPUs round otherwise.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Row, arguments, publish

from etcli.verbs.comparison import GAPS

POSITIONS = 200
TOKENS = 50
BAR = 2.0
RECIPE, NPU_RECIPE = "smollm2-135m", "smollm2-135m-neuron-sim"
PRECISIONS = {
    "fp16": {"export.precision": "fp16"},
    "8da4w": {"export.precision": "8da4w", "export.head": "fp32"},
    "8da8w": {"export.precision": "8da4w"},
    "aqlm": {"model.quantize": "aqlm", "export.precision": "aqlm", "export.head": "fp32"},
    **{name: {"export.precision": name} for name in ("A16W16", "A16W8", "A16W4", "A8W8", "A8W4")},
}
"""What is exported for each row of the table. That of 8da8w is what 8da4w does by default; with aqlm the head has a row of its own. Precisions of
the NPU are those of `NPU_RECIPE`, on the simulated one."""

TEXTS = (
    "The first thing that a visitor notices about the harbour is",
    "To make bread you need flour, water, salt and yeast. Begin by",
    "In 1969 two astronauts walked on the Moon. They",
    "Dear Anna, thank you for your long letter. Since you left, the garden",
    "A computer program is a list of instructions. When it runs,",
    "The mountain railway climbs from the lake to the summit in",
)


@dataclass
class Found:
    """Positions compared, how many tokens were the reference's own, and the largest gap."""

    positions: int = 0
    exact: int = 0
    gap: float = 0.0


def main() -> int:
    """Measure and print; 1 where a gap is too near the allowed one."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    wanted = TOKENS if flags.quick else POSITIONS
    with tempfile.TemporaryDirectory(prefix="etcli-gaps-") as folder:
        rows = [_row(name, values, Path(folder), wanted) for name, values in PRECISIONS.items()]
    return publish("gaps", rows, as_json=flags.json)


def _row(name: str, values: dict[str, str], folder: Path, wanted: int) -> Row:
    found = Found()
    for text in TEXTS:
        result = _smoke(name, values, text, folder)
        found.positions += len(result["tokens"])
        found.exact += result["exact_matches"]
        found.gap = max(found.gap, result["largest_gap"])
        print(f"{name}: {found}", file=sys.stderr, flush=True)
        if found.positions >= wanted:
            break
    allowed = GAPS[name]
    ratio = allowed / found.gap if found.gap else None
    note = f"{found.exact} of {found.positions} tokens are the reference's own choice"
    return Row(name, found.gap, allowed, "logits", ratio, BAR, ratio is None or ratio >= BAR, note)


def _smoke(name: str, values: dict[str, str], text: str, folder: Path) -> dict[str, Any]:
    """The result of one smoke, which has the figures whether or not the gap was within the allowed one."""
    settings = {
        "name": f"gaps-{name.lower()}",
        "export.shapes": "[16t128c, 1t128c]",
        "export.cache": "shift",
        "run.prompt": json.dumps(text),
        "run.chat": "false",
        "run.max_new_tokens": str(TOKENS),
        **values,
    }
    command: list[str | Path] = [sys.executable, "-m", "etcli", "smoke", NPU_RECIPE if name.startswith("A") else RECIPE]
    command += ["--workspace", folder, "--target", "host"]
    command += ["--device", "virtual:x86_64", "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    run = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    document = json.loads(run.stdout)
    if run.returncode not in (0, 10):
        raise SystemExit(f"smoke failed: {document['errors']}")
    found: dict[str, Any] = document["result"]
    return found


if __name__ == "__main__":
    sys.exit(main())
