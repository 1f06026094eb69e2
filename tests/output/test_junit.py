"""JUnit XML, read back with an XML parser."""

import xml.etree.ElementTree as ET

from etcli.output.junit import Case, Suite, write_junit


def test_outcomes_are_told_apart_and_control_characters_go(tmp_path):
    path = tmp_path / "deep" / "out.xml"
    write_junit(
        path,
        [
            Suite("export", [Case("bundle", 1.5)]),
            Suite(
                "run",
                [
                    Case(
                        "runner",
                        0.25,
                        "failed",
                        "exit status 139",
                        "\x1b[31mred\x00 \ud83d",
                        "run.signal",
                        "139\x07: SIGSEGV",
                    ),
                    Case("device", outcome="skipped", message="none"),
                ],
            ),
        ],
        {"device": "phone\x1b"},
    )
    root = ET.parse(path).getroot()
    suites = {suite.get("name"): suite for suite in root}
    assert {name: root.get(name) for name in ("tests", "failures", "skipped", "time")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
        "time": "1.750",
    }
    assert suites["export"].find("properties/property").attrib == {"name": "device", "value": "phone"}
    assert suites["run"].find("properties") is None
    assert suites["export"].get("failures") == "0"
    assert suites["run"].get("tests") == "2"
    assert suites["run"].get("failures") == "1"
    assert suites["run"].get("skipped") == "1"
    failed = suites["run"].find("testcase[@name='runner']")
    assert failed.find("failure").get("message") == "exit status 139"
    assert failed.find("failure").get("type") == "run.signal"
    assert failed.find("failure").text == "139: SIGSEGV"
    assert failed.find("system-out").text == "[31mred "
    assert suites["run"].find("testcase[@name='device']/skipped") is not None
