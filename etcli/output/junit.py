"""JUnit XML for CI systems: a suite a stage, a case a check; passed, failed, without a verdict and skipped told apart."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from etcli.common.files import output_path, write_atomically


@dataclass(frozen=True)
class Case:
    """One check: `seconds` it took, `message` why it did not pass, `output` what it printed.

    A check that failed found something wrong; an `error` kept it from finding out. `kind` is a word for either that stays the same when its
    message changes, `detail` all that there is to say of it.
    """

    name: str
    seconds: float = 0.0
    outcome: Literal["passed", "failed", "error", "skipped"] = "passed"
    message: str = ""
    output: str = ""
    kind: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Suite:
    """A stage and its checks."""

    name: str
    cases: Sequence[Case] = field(default_factory=tuple)


_ELEMENTS = {"failed": "failure", "error": "error", "skipped": "skipped"}


def printable(text: str) -> str:
    """`text` without the characters XML 1.0 cannot hold, which device output is full of."""
    return "".join(
        char
        for char in text
        if char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char >= "\U00010000"
    )


def write_junit(path: Path, suites: Sequence[Suite], properties: Mapping[str, str] | None = None) -> None:
    """Write `suites` as one JUnit document, atomically; `properties` say what was tested with what, and stand in the first suite."""
    root = ET.Element("testsuites", {"name": "etcli"} | _counts([case for suite in suites for case in suite.cases]))
    for index, suite in enumerate(suites):
        node = ET.SubElement(root, "testsuite", {"name": suite.name} | _counts(suite.cases))
        if properties and index == 0:
            told = ET.SubElement(node, "properties")
            for name, value in properties.items():
                ET.SubElement(told, "property", name=name, value=printable(value))
        for case in suite.cases:
            item = ET.SubElement(
                node, "testcase", classname=f"etcli.{suite.name}", name=printable(case.name), time=f"{case.seconds:.3f}"
            )
            if case.outcome != "passed":
                kind = {"type": case.kind} if case.outcome != "skipped" and case.kind else {}
                message = {"message": printable(case.message)}
                why = ET.SubElement(item, _ELEMENTS[case.outcome], message | kind)
                if case.detail:
                    why.text = printable(case.detail)
            if case.output:
                ET.SubElement(item, "system-out").text = printable(case.output)
    ET.indent(root)
    # in bytes, since Python 3.10 declares text to be in the locale's encoding, and files are written in UTF-8
    write_atomically(output_path(path), ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    """The attributes that a suite counts its cases in."""
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.outcome == "failed" for case in cases)),
        "errors": str(sum(case.outcome == "error" for case in cases)),
        "skipped": str(sum(case.outcome == "skipped" for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
