from __future__ import annotations

import ast
from importlib import metadata
from pathlib import Path

import pytest

from etcli.tables.socs import find_soc, load_socs, soc_properties, told_soc, unknown_soc_hint


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


@pytest.mark.parametrize(
    ("value", "ids", "variant"),
    [
        ("MT6991", {"mt6991"}, None),
        ("mt6991", {"mt6991"}, None),
        ("MT6991Z", {"mt6991"}, "MT6991Z"),
        ("MT6989Z/CZA", {"mt6989"}, "MT6989Z/CZA"),
        ("MT8792", {"mt6897"}, None),
        ("MT69910", set(), None),
        ("SM8750", set(), None),
        ("", set(), None),
        (" ", set(), None),
    ],
)
@pytest.mark.known_failure("neuron-soc-alias")
def test_what_a_property_says(value, ids, variant):
    for name in soc_properties():
        told = told_soc({name: value, "ro.product.model": "MT6989"})
        assert (told.ids, told.variant) == (ids, variant)
        assert dict(told.values) == ({name: value} if value.strip() else {})


def test_properties_are_shown_all_and_contradictions_kept():
    told = told_soc({"ro.soc.model": "MT8792", "ro.board.platform": "mt6991", "ro.hardware": "qcom"})
    assert told.ids == {"mt6897", "mt6991"}
    assert told.text == "mt6991 (ro.board.platform), MT8792 (ro.soc.model), qcom (ro.hardware)"
    assert told_soc({}).text == "of an unknown SoC"


def test_uncertain_names_are_shown_as_such():
    assert load_socs()["mt6991"].title == "mt6991 (Dimensity 9400)"
    assert load_socs()["mt6993"].title == "mt6993 (Dimensity 9500, not validated)"
    assert "Dimensity 9500, not validated" in unknown_soc_hint("x")


@pytest.mark.parametrize("name", ["mt6893", "MT6889", "mt6899", "Dimensity 1200"])
def test_another_chip_of_a_similar_id_is_no_misspelling(name):
    hint = unknown_soc_hint(name)
    assert hint.startswith("ExecuTorch's backend compiles nothing for mt68")
    assert "Did you mean" not in hint


def test_ids_are_those_that_executorch_lets_through():
    source = metadata.distribution("executorch").locate_file("executorch/backends/mediatek/preprocess.py")
    named = [
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(Path(str(source)).read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SUPPORTED_PLATFORM_CONFIGS"
    ]
    assert named == [set(load_socs())]
