"""The JSON document of `--json`."""

import json
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import ExitCode, Problem
from etcli.manifests.bundle import Shape
from etcli.output.console import Warn
from etcli.output.document import document, to_plain


@dataclass
class Thing:
    path: Path
    shapes: tuple[Shape, ...]
    exit: ExitCode


def test_results_become_plain_data():
    thing = Thing(Path("a/b"), (Shape(tokens=32, cache=512),), ExitCode.RUN)
    assert to_plain(thing) == {"path": "a/b", "shapes": [{"tokens": 32, "cache": 512}], "exit": 9}


def test_document_has_every_promised_key():
    problem = Problem(
        "recipe.unknown_key", "unknown key 'naem'", "Did you mean name?", Path("r.yaml"), 3, 1, ExitCode.USAGE
    )
    text = document("run", exit_code=2, result=None, warnings=[Warn("a.b", "careful")], problems=[problem])
    assert json.loads(text) == {
        "schema_version": 1,
        "command": "run",
        "ok": False,
        "exit": 2,
        "result": None,
        "warnings": [{"code": "a.b", "message": "careful"}],
        "errors": [
            {
                "code": "recipe.unknown_key",
                "message": "unknown key 'naem'",
                "hint": "Did you mean name?",
                "file": "r.yaml",
                "line": 3,
            }
        ],
    }
