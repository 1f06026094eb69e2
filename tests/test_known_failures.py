"""Each entry of docs/known-failures.md is borne by a test, and each id that a test bears is an entry."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "known-failures.md"
PARTS = ("Seen as", "Cause", "etcli")


def entries() -> list[tuple[str, str]]:
    """Id and text of every entry."""
    parts = re.split(r"^### (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [
        (name.strip(), re.split(r"^## ", text, flags=re.MULTILINE)[0])
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    ]


def borne_ids(source: str) -> set[str]:
    """Ids that tests in `source` bear: `@pytest.mark.known_failure("id", ...)`, or the same as a mark of a case, on what pytest collects."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if not node.name.lower().startswith("test"):
            continue
        for call in (inner for decorator in node.decorator_list for inner in ast.walk(decorator)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.known_failure":
                assert call.args, f"{node.name} bears no id"
                found |= {ast.literal_eval(argument) for argument in call.args}
    return found


def all_borne() -> set[str]:
    return {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in borne_ids(path.read_text(encoding="utf-8"))
    }


def test_every_entry_is_borne_by_a_test() -> None:
    assert sorted({name for name, _ in entries()} - all_borne()) == []


def test_every_borne_id_is_an_entry() -> None:
    assert sorted(all_borne() - {name for name, _ in entries()}) == []


def test_entries_are_whole_and_ids_stand_once() -> None:
    found = entries()
    assert found
    assert [name for name, count in Counter(name for name, _ in found).items() if count > 1] == []
    for name, text in found:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), name
        assert re.findall(r"^- \*\*(.+?)\*\*: \S", text, flags=re.MULTILINE) == list(PARTS), name


def test_ids_are_read_from_decorators_alone() -> None:
    source = """
@pytest.mark.known_failure("one", "two")
def test_a(): ...
@pytest.mark.known_failure("three")
def helper(): ...
class TestB:
    @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.known_failure("six"))])
    @pytest.mark.known_failure("four")
    def test_c(self): "@pytest.mark.known_failure('five')"
"""
    assert borne_ids(source) == {"one", "two", "four", "six"}
