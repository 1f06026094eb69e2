"""Descriptions of operator libraries: what they come to, and each way in which they can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError
from etcli.tables.operators import ATTENTION, read_operators


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the product's attention operators."""
    return Path(shutil.copytree(asset_dir("native") / ATTENTION, tmp_path / "attention"))


def test_the_ring_operators(folder: Path) -> None:
    library = read_operators(folder)
    assert library.operators == ("etcli::last_row.out", "etcli::ring_attention.out")
    assert set(library.special("x86_64-linux-gnu")) == {"attend_avx2.cpp", "attend_avx512.cpp"}
    assert library.special("aarch64-linux-gnu") == {}
    assert {"op.yaml", "attend.inc", "vector.h", "operators.cpp"} <= set(library.hashes)
    assert not [name for name in library.hashes if name.startswith("tests/")]


def test_every_source_beside_the_description_is_listed(folder: Path) -> None:
    library = read_operators(folder)
    listed = {*library.sources, *(name for extra in library.architectures.values() for name in extra)}
    assert listed == {path.name for path in folder.glob("*.cpp")}


def test_no_flag_raises_what_a_build_asks_of_a_cpu(folder: Path) -> None:
    library = read_operators(folder)
    flags = {flag for extra in library.architectures.values() for given in extra.values() for flag in given}
    assert not [flag for flag in flags if flag.startswith(("-march", "-mcpu", "-mtune"))]
    for name in library.sources:
        assert "#pragma GCC target" not in (folder / name).read_text()


def test_a_changed_header_changes_the_hashes(folder: Path) -> None:
    before = read_operators(folder).hashes
    (folder / "vector.h").write_text((folder / "vector.h").read_text() + "\n")
    assert read_operators(folder).hashes != before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("run.cpp", "gone.cpp", "gone.cpp"),
        ("attend_avx2.cpp", "attend_avx3.cpp", "attend_avx3.cpp"),
        ("run.cpp", "../run.cpp", "sources"),
        ("run.cpp", '"run.cpp;x"', "sources"),
        ("-mavx2", '"-mavx2 $(touch x)"', "architectures"),
        ("name: etcli_attention", "name: etcli attention", "name"),
        ("namespace: etcli", "nom: etcli", "nom"),
        ("components: [", "components: [[", "expected"),
    ],
)
def test_a_wrong_description_says_what_is_wrong(folder: Path, old: str, new: str, told: str) -> None:
    path = folder / "op.yaml"
    path.write_text(path.read_text().replace(old, new, 1) if "cpp" not in old else path.read_text().replace(old, new))
    with pytest.raises(BuildError, match="operator library") as caught:
        read_operators(folder)
    assert {problem.code for problem in caught.value.problems} == {"operators.invalid"}
    assert told in caught.value.problems[0].message
    assert {problem.file for problem in caught.value.problems} == {path}


def test_a_folder_without_a_description(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"No such file"):
        read_operators(tmp_path)
