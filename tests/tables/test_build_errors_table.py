"""The table of known build messages is whole, and a bad row is refused."""

from __future__ import annotations

import re

import pydantic
import pytest

from etcli.tables.build_errors import BuildErrorRow, load_build_errors


def test_every_row_has_a_pattern_and_a_remedy() -> None:
    rows = load_build_errors()
    assert len(rows) == len({row.pattern for row in rows}) > 5
    for row in rows:
        assert re.compile(row.pattern).search("") is None
        assert row.hint.endswith((".", "ninja", "--clean."))


def test_a_bad_expression_is_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match="not a regular expression"):
        BuildErrorRow(pattern="(", hint="x")
