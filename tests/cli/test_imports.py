"""Light verbs never import torch or executorch, whatever they find."""

import subprocess
import sys

import pytest

PROBE = """
import sys
from etcli.cli.main import main
try:
    main({words!r})
except SystemExit as stop:
    heavy = sorted(name for name in ("torch", "executorch", "torchao", "transformers") if name in sys.modules)
    print("HEAVY", heavy, file=sys.stderr)
    print("EXIT", stop.code, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "exits"),
    [
        (["--help"], {0}),
        (["--version", "--json"], {0}),
        (["validate"], {0}),
        (["doctor"], {0, 3}),
        (["doctor", "--archive", "a.zip"], {0, 3}),
        (["bench", "--serial", "no-such-device"], {2, 4}),
        (["build", "--dry-run", "--target", "host"], {0, 3}),
        (["deploy", "--serial", "no-such-device"], {2, 4}),
        (["run", "--serial", "no-such-device"], {2, 4}),
        (["inspect", "pyproject.toml"], {2}),
        (["recipe", "list"], {0}),
        (["clean"], {0}),
    ],
)
def test_light_verbs_do_not_import_torch(words, exits, tmp_path, adb_server):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=words)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "HEAVY []" in done.stderr, done.stderr
    code = int(done.stderr.rsplit("EXIT ", 1)[1].split()[0])
    assert code in exits, done.stderr
