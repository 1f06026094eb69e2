"""Static libraries are read as ar itself reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etcli.common.errors import UsageError
from etcli.toolchain.archives import first_object, members

NAMES = ("a.o", "a_name_that_is_longer_than_a_header_holds.o", "odd.txt")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two aarch64 objects and a text of odd length, as ar writes them."""
    folder = tmp_path_factory.mktemp("archive")
    for name in NAMES[:2]:
        argv = ["aarch64-linux-gnu-g++", "-x", "c++", "-c", "-", "-o", folder / name]
        subprocess.run(argv, input=f"int f{len(name)}() {{ return 1; }}", text=True, check=True)
    (folder / NAMES[2]).write_text("odd")
    subprocess.run(["aarch64-linux-gnu-ar", "crs", "lib.a", *reversed(NAMES)], cwd=folder, check=True)
    return folder / "lib.a"


def test_members_are_those_that_ar_takes_out(archive: Path, tmp_path: Path) -> None:
    subprocess.run(["ar", "x", archive], cwd=tmp_path, check=True)
    listed = subprocess.run(["ar", "t", archive], capture_output=True, text=True, check=True).stdout.split()
    assert [content for _, content in members(archive)] == [(tmp_path / name).read_bytes() for name in listed]


def test_the_first_object_says_machine_and_compiler(archive: Path) -> None:
    facts = first_object(archive)
    assert facts.machine == "EM_AARCH64"
    assert "GCC" in facts.compiler
    assert facts.clang is None


def test_clang_is_told_with_its_version(tmp_path: Path) -> None:
    subprocess.run(["clang", "-x", "c", "-c", "-", "-o", tmp_path / "a.o"], input="int f;", text=True, check=True)
    subprocess.run(["ar", "crs", tmp_path / "lib.a", tmp_path / "a.o"], check=True)
    banner = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
    assert f"clang version {first_object(tmp_path / 'lib.a').clang}." in banner


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no static library"),
        (b"\x7fELF", "no static library"),
        (b"!<thin>\n", "thin archive"),
        (b"!<arch>\n" + b"x" * 60, "damaged"),
        (b"!<arch>\n" + b"a/".ljust(48) + b"100".ljust(10) + b"`\nshort", "cut short"),
        (b"!<arch>\n" + b"a/".ljust(48) + b"4".ljust(10) + b"`\ntext", "holds no ELF object"),
    ],
)
def test_what_is_no_static_library(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "lib.a"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why) as caught:
        first_object(path)
    assert caught.value.problems[0].code == "archive.invalid"


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        first_object(tmp_path / "none.a")
