"""Descriptions of operator libraries: what they come to, and each way in which they can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from operator_folders import write_operators

from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError, Problem, RecipeError
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


# descriptions of the user's own


def own_problems(folder: Path, text: str) -> list[Problem]:
    (folder / "op.yaml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_operators(folder, own=True, error=RecipeError)
    assert {problem.code for problem in caught.value.problems} == {"operators.invalid"}
    assert {problem.file for problem in caught.value.problems} == {folder / "op.yaml"}
    assert all(problem.hint for problem in caught.value.problems)
    return list(caught.value.problems)


def test_every_key_of_a_users_library(tmp_path: Path) -> None:
    folder = write_operators(
        tmp_path,
        more="flags: [-O3, -ffast-math, -std=c++20, -DA=1, -Wno-unused]\ndefinitions: [LOUD, LEVEL=3]\nopenmp: true\n"
        "components: [threadpool]\ntorch: [sub/binding-2.cc]\narchitectures:\n  aarch64: {dot.cxx: [-march=armv8.2-a+dotprod]}\n",
    )
    (folder / "sub").mkdir()
    for name in ("sub/binding-2.cc", "dot.cxx", "shout.hpp"):
        (folder / name).write_text("")
    library = read_operators(folder, own=True, error=RecipeError)
    assert library.own
    assert library.openmp
    assert library.components == ("runtime", "threadpool")
    assert library.torch == ("sub/binding-2.cc",)
    assert library.definitions == ("LOUD", "LEVEL=3")
    assert library.special("aarch64-linux-gnu") == {"dot.cxx": ("-march=armv8.2-a+dotprod",)}
    assert set(library.hashes) == {"op.yaml", "twice.cpp", "sub/binding-2.cc", "dot.cxx", "shout.hpp"}


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "told"),
    [
        ("[twice.cpp]", "[../twice.cpp]", 4, 11, "leads out of the folder"),
        ("[twice.cpp]", "[/etc/twice.cpp]", 4, 11, "leads out of the folder"),
        ("[twice.cpp]", "[twice.c]", 4, 11, "no C++ source"),
        ("[twice.cpp]", "[twice.cpp, twise.cpp]", 4, 22, "there is no twise.cpp (there is twice.cpp)"),
        ("[twice.cpp]", "twice.cpp", 4, 1, "sources must be a list"),
        ("[twice.cpp]", "[]", 4, 1, "sources is empty"),
        ("[twice.cpp]", '["twice.cpp;rm"]', 4, 11, "no C++ source"),
        ("name: shout_ops", "name: all", 1, 1, "a word of CMake's own"),
        ("name: shout_ops", "name: 3", 1, 1, "name must be text"),
        ("namespace: shout", "namespace: shout::loud", 2, 1, "is not a name"),
        ('"twice.out', '"shout::twice.out', 3, 13, "leave the namespace out"),
        ('"twice.out', '"twice out', 3, 13, "is not a schema"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-O3, -march=native]", 5, 14, "the CPU of this machine alone"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-mtune=native]", 5, 9, "the CPU of this machine alone"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-mavx2]", 5, 9, "under architectures"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-fopenmp]", 5, 9, "openmp: true"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-fplugin=x.so]", 5, 9, "the whole build"),
        ("[twice.cpp]", "[twice.cpp]\nflags: ['-Wl,-rpath,x']", 5, 9, "not a flag that a library may set"),
        ("[twice.cpp]", '[twice.cpp]\nflags: ["-DX $(touch y)"]', 5, 9, "not a flag that a library may set"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-include]", 5, 9, "not a flag that a library may set"),
        ("[twice.cpp]", "[twice.cpp]\nflags: [-fpass-plugin=x.so]", 5, 9, "the whole build"),
        ("[twice.cpp]", "[twice.cpp]\narchitectures: {arm64: {twice.cpp: []}}", 5, 17, "'arm64' is not one of x86_64"),
        ("[twice.cpp]", "[folder.cpp]", 4, 11, "folder.cpp is no file"),
        ("name: shout_ops", "name: preinstall", 1, 1, "a word of CMake's own"),
        ("name: shout_ops", "name: " + "n" * 300, 1, 1, "more than 100 characters"),
        ("[twice.cpp]", "[twice.cpp]\nopenmp: 1", 5, 1, "openmp must be true or false"),
        ("[twice.cpp]", "[twice.cpp]\nopenpm: true", 5, 1, "unknown key 'openpm'"),
        ("[twice.cpp]", "[twice.cpp]\nname: again", 5, 1, "the key 'name' is written twice"),
        ("[twice.cpp]", "[twice.cpp]\ncomponents: [runtim]", 5, 14, "there is no 'runtim'"),
        ("[twice.cpp]", "[twice.cpp]\ndefinitions: ['A B']", 5, 15, "is not NAME or NAME=VALUE"),
        ("[twice.cpp]", "[twice.cpp]\n\ttabs: 1", 5, 1, "cannot start any token"),
        ("[twice.cpp]", "[twice.cpp]\nopenmp: !!python/object:os.system {}", 5, 1, "openmp must be true or false"),
        ("[twice.cpp]", "[twice.cpp]\nopenmp: !!python/name:os.system x", 5, 9, "could not determine a constructor"),
        ("sources", "# sources", None, None, "the key sources is missing"),
    ],
)
def test_a_users_fault_is_told_at_its_place(
    tmp_path: Path, old: str, new: str, line: int | None, column: int | None, told: str
) -> None:
    text = (write_operators(tmp_path) / "op.yaml").read_text()
    (tmp_path / "folder.cpp").mkdir()
    assert old in text
    [problem] = own_problems(tmp_path, text.replace(old, new, 1))
    assert told in problem.message
    assert (problem.line, problem.column) == (line, column)


def test_several_faults_are_told_in_their_order(tmp_path: Path) -> None:
    write_operators(tmp_path)
    problems = own_problems(tmp_path, "namespace: 1\nopertors: []\nsources: [../a.cpp, b.c]\n")
    assert [problem.line for problem in problems] == [1, 2, 3, 3, None, None]
    assert problems[1].hint == "Did you mean 'operators'?"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just text",
        "- a list",
        "\x00",
        "{" * 3000,
        "a: &a [x, x, x, x, x, x, x, x]\nb: &b ["
        + ", ".join(["*a"] * 40)
        + "]\nc: &c ["
        + ", ".join(["*b"] * 40)
        + "]\nd: [*c, *c]\n",
        "a: " + "x" * 70000,
        "name: a\n---\nname: b\n",
        "? [a]\n: b\n",
        "name: !!int x\n",
        'name: !!int ""\n',
        'name: !!float ""\n',
        "name: 0001-01-01T00:00:00+23:00\n",
        "a: &a [*a]\n",
    ],
)
def test_no_text_is_too_odd(tmp_path: Path, text: str) -> None:
    write_operators(tmp_path)
    assert own_problems(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    write_operators(tmp_path)
    (tmp_path / "op.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(RecipeError, match="UTF-8"):
        read_operators(tmp_path, own=True, error=RecipeError)


@pytest.mark.parametrize(
    ("fields", "code", "line", "column"),
    [
        ({"name": "etcli_more"}, "operators.name", 1, 1),
        ({"name": "executorch"}, "operators.name", 1, 1),
        ({"name": "executorch_kernels_optimized"}, "operators.name", 1, 1),
        ({"name": "pthread"}, "operators.name", 1, 1),
        ({"namespace": "aqlm"}, "operators.namespace", 2, 1),
        ({"operators": ("twice.out", "thrice.out", "twice.out")}, "operators.twice", 3, 126),
    ],
)
def test_a_users_library_takes_nobodys_name(
    tmp_path: Path, fields: dict[str, Any], code: str, line: int, column: int
) -> None:
    write_operators(tmp_path, **fields)
    with pytest.raises(RecipeError) as caught:
        read_operators(tmp_path, own=True, error=RecipeError)
    [problem] = caught.value.problems
    assert (problem.code, problem.file, problem.line, problem.column) == (code, tmp_path / "op.yaml", line, column)
    assert problem.hint


def test_names_that_only_begin_like_others(tmp_path: Path) -> None:
    write_operators(tmp_path, name="dlx", namespace="atenx", operators=("twice.out", "twice.Scalar_out"))
    assert read_operators(tmp_path, own=True, error=RecipeError).name == "dlx"


def test_a_header_that_cannot_be_read(tmp_path: Path) -> None:
    write_operators(tmp_path)
    (tmp_path / "shout.h").symlink_to("/proc/self/mem")  # for nobody, root neither
    with pytest.raises(RecipeError, match=r"cannot be read: ") as caught:
        read_operators(tmp_path, own=True, error=RecipeError)
    assert caught.value.problems[0].code == "operators.unreadable"


@pytest.mark.parametrize("name", ["a.tpp", "b.txx", "deep/c.tcc", "d.h++", "e.c"])
def test_whatever_sources_include_counts(tmp_path: Path, name: str) -> None:
    write_operators(tmp_path)
    before = read_operators(tmp_path, own=True, error=RecipeError).sha256
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1")
    assert read_operators(tmp_path, own=True, error=RecipeError).sha256 != before


def test_a_link_that_leads_out(tmp_path: Path) -> None:
    folder = write_operators(tmp_path / "ops")
    (tmp_path / "other.cpp").write_text("")
    (folder / "twice.cpp").unlink()
    (folder / "twice.cpp").symlink_to(tmp_path / "other.cpp")
    with pytest.raises(RecipeError, match=r"twice\.cpp is a link that leads out of the folder"):
        read_operators(folder, own=True, error=RecipeError)


def test_the_hash_is_of_contents_and_not_of_the_place(tmp_path: Path) -> None:
    first, second = write_operators(tmp_path / "a"), write_operators(tmp_path / "b" / "c")
    same = read_operators(first, own=True).sha256
    assert read_operators(second, own=True).sha256 == same
    (second / "new.h").write_text("")
    assert read_operators(second, own=True).sha256 != same


def test_a_source_that_is_listed_counts_wherever_it_stands(tmp_path: Path) -> None:
    folder = write_operators(tmp_path)
    (folder / "tests").mkdir()
    (folder / "twice.cpp").rename(folder / "tests" / "twice.cpp")
    (folder / "op.yaml").write_text((folder / "op.yaml").read_text().replace("twice.cpp", "tests/twice.cpp"))
    assert set(read_operators(folder, own=True).hashes) == {"op.yaml", "tests/twice.cpp"}
