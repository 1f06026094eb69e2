"""`inspect` of an ELF file: the audit's table, for the target that the file is for, and what would not pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etcli.cli import show
from etcli.output.console import Console
from etcli.verbs.inspect import inspect

ANDROID_NOTE = (
    '__asm__(".section .note.android.ident,\\"a\\",%note\\n.balign 4\\n.long 8, 132, 1\\n.ascii \\"Android\\\\0\\"\\n.long 26\\n'
    '.ascii \\"r28b\\"\\n.space 60\\n.space 64\\n.previous\\n");'
)


def compiled(path: Path, text: str, *flags: str) -> Path:
    argv = ["aarch64-linux-gnu-g++", "-x", "c++", "-", "-x", "none", "-nostdlib", "-fPIC", "-o", str(path), *flags]
    subprocess.run(argv, input=text, text=True, check=True)
    return path


def test_a_library_for_android(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = compiled(
        tmp_path / "liba.so",
        ANDROID_NOTE,
        "-shared",
        "-Wl,-soname,liba.so",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-rpath,/home/me",
    )
    found = inspect(path)
    assert found.audit is not None
    assert found.audit.target == "android"
    assert (found.audit.elf.android_api, found.audit.elf.ndk) == (26, "r28b")
    assert [problem.code for problem in found.audit.problems] == ["audit.run_path", "audit.alignment"]
    console = Console()
    show.inspected(console, found)
    printed = capsys.readouterr()
    assert "26, r28b" in printed.out
    assert "4096 bytes" in printed.out
    assert [warning.code for warning in console.warnings] == ["audit.run_path", "audit.alignment"]
    assert "would not pass the audit of a build for android: liba.so has a segment aligned to 4096 bytes" in printed.err


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        (("-pie", "-Wl,--dynamic-linker=/system/bin/linker64"), "android"),
        (("-pie", "-Wl,--dynamic-linker=/lib/ld-linux-aarch64.so.1"), "linux-aarch64"),
        (("-pie", "-Wl,--dynamic-linker=/lib/ld-musl-aarch64.so.1"), None),
    ],
)
def test_the_target_of_a_program_is_told_by_its_loader(
    tmp_path: Path, flags: tuple[str, ...], target: str | None
) -> None:
    found = inspect(compiled(tmp_path / "program", 'extern "C" void _start() {}', *flags))
    assert found.audit is not None
    assert found.audit.target == target
    assert (found.audit.problems == ()) == (target != "android" or found.audit.elf.load_alignment >= 16384)


def test_the_target_of_a_library_is_told_by_its_c_library(tmp_path: Path) -> None:
    for name, target in (("libc.so", "android"), ("libc.so.6", "linux-aarch64")):
        system = compiled(tmp_path / name, "", "-shared", f"-Wl,-soname,{name}")
        other = compiled(tmp_path / "libother.so", "", "-shared", "-Wl,-soname,libother.so")
        links = ("-shared", "-Wl,--no-as-needed", str(system), str(other))
        found = inspect(compiled(tmp_path / "liba.so", "", *links))
        assert found.audit is not None
        assert found.audit.target == target
        assert found.audit.staged == ("libother.so",)


def test_runtimes_inside_are_named(tmp_path: Path) -> None:
    text = 'const char* a() { return "KMP_AFFINITY"; } const char* b() { return "terminating due to %s exception of type %s: %s"; }'
    found = inspect(compiled(tmp_path / "liba.so", text, "-shared"))
    assert found.audit is not None
    assert found.audit.runtimes == ("C++", "OpenMP")
