"""Names from archives, manifests and indexes: what is taken as a plain relative path stays inside the folder that it is put in."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from etcli.common.files import check_relative

PIECES = st.lists(
    st.sampled_from(["a", "..", ".", "/", "//", "\\", "\0", "\n", "~", "C:", "b.c", " ", "\u2024", "é"]), max_size=8
)


@settings(max_examples=500, deadline=None)
@given(name=st.one_of(PIECES.map("".join), PIECES.map("/".join), st.text(max_size=12)))
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    folder = Path("/some/folder")
    try:
        inside = folder / check_relative(name)
    except ValueError:
        return
    normal = Path(os.path.normpath(f"{folder}/{name}"))
    assert normal == inside
    assert folder in normal.parents
    assert not any(ord(char) < 32 for char in str(inside))


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(
        st.text("abc.-_ é", min_size=1, max_size=5).filter(lambda part: part not in (".", "..")), min_size=1, max_size=4
    )
)
def test_every_plain_name_is_taken(parts: list[str]) -> None:
    assert check_relative("/".join(parts)).parts == tuple(parts)
