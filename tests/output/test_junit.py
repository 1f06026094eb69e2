"""JUnit XML, read back with an XML parser."""

import xml.etree.ElementTree as ET

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def test_errors_are_no_failures(tmp_path):
    path = tmp_path / "out.xml"
    write_junit(
        path, [Suite("run", [Case("runner", 0.5, "error", "KeyboardInterrupt", "said", "interrupted", "more")])]
    )
    assert path.read_bytes().startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    (suite,) = ET.parse(path).getroot()
    assert (suite.get("errors"), suite.get("failures"), suite.get("skipped")) == ("1", "0", "0")
    error = suite.find("testcase/error")
    assert (error.attrib, error.text) == ({"message": "KeyboardInterrupt", "type": "interrupted"}, "more")


WORDS = st.text(st.characters(codec=None), max_size=30)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=WORDS, message=WORDS, output=WORDS, detail=WORDS, value=WORDS)
def test_any_text_is_well_formed_and_read_back(tmp_path, name, message, output, detail, value):
    """Lone surrogates, control characters, `]]>`, tags: whatever a device printed."""
    path = tmp_path / "out.xml"
    write_junit(path, [Suite("run", [Case(name, 1.0, "failed", message, output, "run.x", detail)])], {"device": value})
    (suite,) = ET.parse(path).getroot()
    case = suite.find("testcase")

    def lines(text):  # an XML parser gives \n for every end of a line in text
        return (text or "").replace("\r\n", "\n").replace("\r", "\n")

    def kept(text):
        return "".join(
            char
            for char in text
            if char in "\t\n\r" or (char >= " " and char not in "\ufffe\uffff" and not "\ud800" <= char <= "\udfff")
        )

    assert case.get("name") == kept(name)
    failure = case.find("failure")
    assert failure.get("message") == kept(message)
    assert lines(failure.text) == lines(kept(detail))
    told = case.find("system-out")
    assert lines(told.text if told is not None else "") == lines(kept(output))
    assert suite.find("properties/property").get("value") == kept(value)
