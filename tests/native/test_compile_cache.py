"""The compiler launcher of the tests: what it takes from its store is what the compiler would make; whatever could differ is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import compile_cache
import pytest


class Folder:
    """A source with a header in a folder of its own, compiled through the launcher."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder, self.store = folder, store
        (folder / "include").mkdir(parents=True)
        self.source, self.header = folder / "a.c", folder / "include" / "a.h"
        self.header.write_text("#define NUMBER 1\n")
        self.source.write_text('#include "a.h"\nint number(void) { return NUMBER; }\nconst char *file = __FILE__;\n')

    def compile(self, *flags: str) -> subprocess.CompletedProcess[str]:
        words = ["gcc", "-O2", f"-ffile-prefix-map={self.folder}=here", "-I", str(self.folder / "include"), *flags]
        self.command = [*words, "-MD", "-MT", "a.o", "-MF", "a.o.d", "-o", "a.o", "-c", str(self.source)]
        launched = compile_cache.launcher(self.store).split(";")
        return subprocess.run(
            [*launched, "/usr/bin/gcc", *self.command[1:]], cwd=self.folder, capture_output=True, text=True, check=False
        )

    @property
    def object(self) -> bytes:
        return (self.folder / "a.o").read_bytes()

    def plain(self) -> bytes:
        """What the compiler alone makes of the last command."""
        subprocess.run([word if word != "a.o" else "b.o" for word in self.command], cwd=self.folder, check=True)
        return (self.folder / "b.o").read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def kept(store: Path) -> int:
    return sum(path.suffix == "" for path in store.glob("??/*"))


def test_the_same_in_another_folder_is_taken_from_the_store(tmp_path: Path, store: Path) -> None:
    one, other = Folder(tmp_path / "one", store), Folder(tmp_path / "deep" / "er" / "other", store)
    assert one.compile().returncode == 0
    (object_,) = [path for path in store.glob("??/*") if path.suffix == ""]
    assert one.object == one.plain() == object_.read_bytes()
    object_.write_bytes(b"from the store")
    assert other.compile().returncode == 0
    assert other.object == b"from the store"
    assert str(other.header) in (other.folder / "a.o.d").read_text()
    assert str(one.folder) not in (other.folder / "a.o.d").read_text()


def test_whatever_differs_is_compiled(tmp_path: Path, store: Path) -> None:
    folder = Folder(tmp_path / "one", store)
    folder.compile()
    for number, change in enumerate(
        [
            lambda: folder.compile("-O1"),
            lambda: folder.compile("-DMORE"),
            lambda: (folder.header.write_text("#define NUMBER 2\n"), folder.compile())[1],
            lambda: (folder.source.write_text("int other(void) { return __LINE__; }\n"), folder.compile())[1],
        ],
        start=2,
    ):
        assert change().returncode == 0
        assert kept(store) == number
        assert folder.object == folder.plain()


def test_names_of_folders_that_show_in_the_object_are_told_apart(tmp_path: Path, store: Path) -> None:
    for name in ("one", "other"):
        folder = Folder(tmp_path / name, store)
        assert folder.compile(f"-ffile-prefix-map={folder.folder}={name}").returncode == 0
        assert folder.object == folder.plain()
    assert kept(store) == 2


@pytest.mark.parametrize("flags", [("-g",), ("-Wall", "-DMORE=unused"), ("-save-temps",)])
def test_the_uncommon_goes_to_the_compiler(tmp_path: Path, store: Path, flags: tuple[str, ...]) -> None:
    folder = Folder(tmp_path / "one", store)
    folder.source.write_text("int main(void) { int unused; }\n")
    done = folder.compile(*flags)
    assert done.returncode == 0
    assert ("unused" in done.stderr) == ("-Wall" in flags)
    assert kept(store) == 0


def test_errors_are_the_compilers_own(tmp_path: Path, store: Path) -> None:
    folder = Folder(tmp_path / "one", store)
    for text in ("#include <not-there.h>\n", "int main(void) { return nothing; }\n"):
        folder.source.write_text(text)
        done = folder.compile()
        assert done.returncode == 1
        assert "error:" in done.stderr
        assert f"{folder.source}:1:" in done.stderr
    assert kept(store) == 0


def test_a_program_that_stands_in_for_a_compiler_is_run(tmp_path: Path, store: Path) -> None:
    stand_in = tmp_path / "gcc"
    stand_in.write_text(f"#!/bin/sh\necho ran >> {tmp_path / 'log'}\n")
    stand_in.chmod(0o755)
    launched = compile_cache.launcher(store).split(";")
    (tmp_path / "a.c").write_text("")
    assert launched[0] == sys.executable
    subprocess.run([*launched, stand_in, "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "ran\n"
