"""Programs are found beside this Python first, and a missing, broken or old one says how to get it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcli.common.errors import ExitCode, ToolError
from etcli.tables.targets import load_targets
from etcli.toolchain import bubblewrap, cmake, compilers, ninja, programs, qemu

HOST = load_targets()["host"]
AARCH64 = load_targets()["linux-aarch64"]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH, and that stands for the environment's scripts too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(programs.sysconfig, "get_path", lambda _: str(folder / "none"))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_the_environments_program_goes_before_path(path: Path) -> None:
    on_path = script(path, "cmake", "echo cmake version 3.31.0")
    assert cmake.verify() == programs.Program(on_path, "3.31.0")
    beside = script(path / "none", "cmake", "echo cmake version 4.0.1")
    assert cmake.verify() == programs.Program(beside, "4.0.1")


@pytest.mark.parametrize(
    ("text", "code"),
    [("echo cmake version 3.27.9", "cmake.too_old"), ("exit 1", "cmake.broken"), ("echo hello", "cmake.broken")],
)
def test_an_unusable_cmake(path: Path, text: str, code: str) -> None:
    script(path, "cmake", text)
    with pytest.raises(ToolError) as caught:
        cmake.verify()
    [problem] = caught.value.problems
    assert problem.code == code
    assert "pip install 'cmake>=3.28'" in (problem.hint or "")
    assert problem.exit_code == ExitCode.ENVIRONMENT


def test_what_is_missing_says_how_to_get_it(path: Path) -> None:
    found = {}
    for find in (
        cmake.find,
        ninja.verify,
        bubblewrap.verify,
        lambda: qemu.find(AARCH64),
        lambda: compilers.verify(HOST),
        lambda: compilers.verify(AARCH64),
    ):
        with pytest.raises(ToolError) as caught:
            find()
        [problem] = caught.value.problems
        found[problem.hint] = problem.code
    sudo = "" if os.geteuid() == 0 else "sudo "
    apt = f"Install it: {sudo}apt-get install -y "
    assert found[f"{apt}bubblewrap"] == "bubblewrap.missing"
    assert found[f"{apt}qemu-user-static"] == "qemu.missing"
    assert found[f"{apt}g++"] == "compiler.missing"
    assert found[f"{apt}g++-aarch64-linux-gnu"] == "compiler.missing"
    assert "Install it beside etcli: python -m pip install ninja" in found


@pytest.mark.parametrize(
    ("banner", "kind", "version"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc", "12.2.0"),
        ("g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", "gcc", "13.3.0"),
        ("g++ (GCC) 14.2.1 20240912", "gcc", "14.2.1"),
        ("Debian clang version 14.0.6", "clang", "14.0.6"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "clang", "18.1.3"),
    ],
)
def test_the_compilers_own_version_is_read(path: Path, banner: str, kind: str, version: str) -> None:
    program = script(path, "g++", f'[ "$1" = -dumpmachine ] && echo x86_64-linux-gnu || echo "{banner}"')
    found = compilers.verify(HOST)
    assert (found.path, found.kind, found.version) == (program, kind, version)
    assert found.description == banner


@pytest.mark.parametrize(
    ("version", "machine", "code"),
    [
        ("12.2.0", "x86_64-linux-gnu", "compiler.wrong_target"),
        ("8.3.0", "aarch64-linux-gnu", "compiler.too_old"),
        ("", "aarch64-linux-gnu", "compiler.broken"),
    ],
)
def test_an_unusable_cross_compiler(path: Path, version: str, machine: str, code: str) -> None:
    script(path, "aarch64-linux-gnu-g++", f'[ "$1" = -dumpmachine ] && echo {machine} || echo "g++ (x) {version}"')
    with pytest.raises(ToolError) as caught:
        compilers.verify(AARCH64)
    assert caught.value.problems[0].code == code


def test_cxx_is_honoured_for_this_machine_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = '[ "$1" = -dumpmachine ] && echo {} || echo "g++ (x) 12.2.0"'
    script(path, "g++", answer.format("x86_64-linux-gnu"))
    mine = script(path, "my-g++", answer.format("x86_64-linux-gnu"))
    cross = script(path, "aarch64-linux-gnu-g++", answer.format("aarch64-linux-gnu"))
    monkeypatch.setenv("CXX", "my-g++")
    assert compilers.verify(HOST).path == mine
    assert compilers.verify(AARCH64).path == cross
    monkeypatch.setenv("CXX", "absent-g++")
    with pytest.raises(ToolError, match=r"\$CXX"):
        compilers.verify(HOST)


def test_a_replaced_compiler_has_another_stamp(path: Path) -> None:
    text = '[ "$1" = -dumpmachine ] && echo x86_64-linux-gnu || echo "g++ (x) 12.2.0"'
    script(path, "g++", text)
    before = compilers.verify(HOST)
    script(path, "g++", f"{text} # newer")
    after = compilers.verify(HOST)
    assert before.version == after.version
    assert before.stamp != after.stamp


def test_a_program_that_hangs_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_ANSWER_SECONDS", 0.5)
    asked = path.parent / "asked"
    for name in ("cmake", "bwrap", "aarch64-linux-gnu-g++"):
        script(path, name, f"echo x >> {asked}; exec /bin/sleep 100")
    for verify in (cmake.verify, bubblewrap.verify, lambda: compilers.verify(AARCH64)):
        with pytest.raises(ToolError, match="does not tell its version within") as caught:
            verify()
        assert caught.value.problems[0].hint
    assert asked.read_text() == "x\n" * 3, "none is asked twice"
