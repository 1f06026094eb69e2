"""Which of the files that a hub lists are fetched: never one whose name leads out of the repository's folder."""

from __future__ import annotations

import pytest

from etcli.checkpoint.hub_files import choose
from etcli.common.errors import CheckpointError

NAMES = ["../../../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "..\\x.gguf", "a//x.gguf", "x\n.gguf"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_out_is_not_there(name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        choose("hf:a/b", [name])
    assert caught.value.problems[0].code == "hub.files"
    assert "it is empty" in caught.value.problems[0].message


def test_the_others_are_chosen_from() -> None:
    assert choose("hf:a/b", [*NAMES, "good.gguf"]).files == ("good.gguf",)
