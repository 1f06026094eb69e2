from __future__ import annotations

import pytest

from etcli.tables.socs import find_soc, load_socs


@pytest.mark.parametrize(
    ("name", "soc"),
    [
        ("mt6989", "mt6989"),
        ("MT6991", "mt6991"),
        ("DX3", "mt6989"),
        ("dx4", "mt6991"),
        ("Dimensity 9400", "mt6991"),
        ("dimensity-9300", "mt6989"),
        ("D9500", "mt6993"),
        ("mt6993", "mt6993"),
    ],
)
def test_ids_aliases_and_names(name, soc):
    found = find_soc(name)
    assert found is not None
    assert found.id == soc


@pytest.mark.parametrize("name", ["mt6897", "Dimensity 9400+", "", "mt699", "D9000"])
def test_others_are_not_guessed(name):
    assert find_soc(name) is None


def test_exactly_the_ids_of_the_backend():
    assert list(load_socs()) == ["mt6989", "mt6991", "mt6993"]


def test_the_name_that_upstream_does_not_give_is_marked():
    assert {soc.id for soc in load_socs().values() if not soc.certain} == {"mt6993"}
