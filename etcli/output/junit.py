"""JUnit XML for CI systems: a suite a stage, a case a check; skipped, failed and passed told apart."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from etcli.common.files import write_atomically


@dataclass(frozen=True)
class Case:
    """One check: `seconds` it took, `message` why it failed or was skipped, `output` what it printed."""

    name: str
    seconds: float = 0.0
    outcome: Literal["passed", "failed", "skipped"] = "passed"
    message: str = ""
    output: str = ""


@dataclass(frozen=True)
class Suite:
    """A stage and its checks."""

    name: str
    cases: Sequence[Case] = field(default_factory=tuple)


def printable(text: str) -> str:
    """`text` without the characters XML 1.0 cannot hold, which device output is full of."""
    return "".join(
        char
        for char in text
        if char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char >= "\U00010000"
    )


def write_junit(path: Path, suites: Sequence[Suite]) -> None:
    """Write `suites` as one JUnit document, atomically."""
    root = ET.Element("testsuites", name="etcli")
    for suite in suites:
        node = ET.SubElement(
            root,
            "testsuite",
            name=suite.name,
            tests=str(len(suite.cases)),
            failures=str(sum(case.outcome == "failed" for case in suite.cases)),
            errors="0",
            skipped=str(sum(case.outcome == "skipped" for case in suite.cases)),
            time=f"{sum(case.seconds for case in suite.cases):.3f}",
        )
        for case in suite.cases:
            item = ET.SubElement(
                node, "testcase", classname=f"etcli.{suite.name}", name=printable(case.name), time=f"{case.seconds:.3f}"
            )
            if case.outcome != "passed":
                kind = "failure" if case.outcome == "failed" else "skipped"
                ET.SubElement(item, kind, message=printable(case.message))
            if case.output:
                ET.SubElement(item, "system-out").text = printable(case.output)
    ET.indent(root)
    write_atomically(path, ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n")
