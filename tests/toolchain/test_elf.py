"""ELF files read as readelf reads them; damaged ones end in one clear error."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcli.common.errors import BuildError, EtcliError, UsageError
from etcli.toolchain.elf import is_elf, read_elf, read_symbol_versions
from etcli.toolchain.executorch import host_package
from etcli.toolchain.registrations import read_registrations


def readelf(path: Path, flag: str) -> str:
    return subprocess.run(["readelf", flag, "-W", path], capture_output=True, text=True, check=True).stdout


def compiled(path: Path, compiler: str = "g++", *flags: str) -> Path:
    argv = [compiler, "-x", "c++", "-", "-o", path, *flags]
    subprocess.run(
        argv,
        input="#include <string>\nint main(int n, char**) { return std::string(n, 'x').size(); }",
        text=True,
        check=True,
    )
    return path


@pytest.mark.parametrize(
    ("compiler", "machine", "interpreter", "flags"),
    [
        ("g++", "EM_X86_64", "/lib64/ld-linux-x86-64.so.2", ["-Wl,-rpath,$ORIGIN/lib"]),
        ("g++", "EM_X86_64", "/lib64/ld-linux-x86-64.so.2", ["-Wl,--disable-new-dtags,-rpath,/old"]),
        ("aarch64-linux-gnu-g++", "EM_AARCH64", "/lib/ld-linux-aarch64.so.1", []),
        ("aarch64-linux-gnu-g++", "EM_AARCH64", None, ["-static"]),
        ("aarch64-linux-gnu-g++", "EM_AARCH64", None, ["-shared", "-fPIC", "-Wl,-soname,libx.so.3"]),
    ],
)
def test_facts_equal_readelf(
    tmp_path: Path, compiler: str, machine: str, interpreter: str | None, flags: list[str]
) -> None:
    path = compiled(tmp_path / "program", compiler, *flags)
    facts = read_elf(path)
    dynamic, segments = readelf(path, "-d"), readelf(path, "-l")
    assert facts.machine == machine
    assert facts.interpreter == interpreter
    assert list(facts.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert facts.run_path == next(iter(re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)), None)
    assert facts.soname == next(iter(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)), None)
    assert facts.load_alignment == min(
        int(align, 16) for align in re.findall(r"^\s*LOAD.*(0x[0-9a-f]+)$", segments, re.M)
    )


def test_symbol_versions_equal_readelf(tmp_path: Path) -> None:
    path = compiled(tmp_path / "program")
    needs = readelf(path, "-V").partition("version needs")[2] or readelf(path, "-V").partition("Version needs")[2]
    names = set(re.findall(r"Name: (\S+)\s+Flags", needs))
    found = read_symbol_versions(path)
    assert frozenset().union(*found.needed.values()) == names
    runtime = subprocess.run(["g++", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True)
    assert found.needed["libstdc++.so.6"] <= read_symbol_versions(Path(runtime.stdout.strip())).defined


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF" + b"\xff" * 200])
def test_what_is_no_elf_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert is_elf(path) == content.startswith(b"\x7fELF")
    with pytest.raises(UsageError) as caught:
        read_elf(path)
    assert caught.value.problems[0].code == "elf.invalid"
    assert caught.value.problems[0].file == path


def test_a_missing_file_and_an_object_file(tmp_path: Path) -> None:
    assert not is_elf(tmp_path / "none")
    with pytest.raises(BuildError) as caught:
        read_elf(tmp_path / "none", error=BuildError)
    assert caught.value.problems[0].code == "elf.missing"
    subject = compiled(tmp_path / "x.o", "g++", "-c")
    with pytest.raises(UsageError, match="object file"):
        read_elf(subject)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_an_error_or_an_answer(tmp_path: Path, data: st.DataObject) -> None:
    sound = tmp_path / "sound"
    if not sound.exists():
        compiled(sound, "g++", "-Wl,-z,norelro", "-s")
    content = bytearray(sound.read_bytes())
    length = data.draw(st.integers(0, len(content)))
    places = data.draw(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=6))
    for place, value in places:
        content[place] = value
    path = tmp_path / "damaged"
    path.write_bytes(bytes(content[:length]))
    for read in (read_elf, read_symbol_versions, read_registrations):
        try:
            read(path)
        except EtcliError as error:
            assert error.problems[0].code == "elf.invalid"  # noqa: PT017 - an answer is as good


def test_registrations_of_the_installed_libraries() -> None:
    """The names that ExecuTorch documents for these libraries; `test_host_build` compares the whole with the registry itself."""
    libraries = host_package().libraries
    kernels = read_registrations(libraries / "libexecutorch_kernels_optimized.so")
    assert {"aten::add.out", "aten::copy_", "aten::linear.out", "dim_order_ops::_clone_dim_order.out"} <= set(
        kernels.operators
    )
    assert all(re.fullmatch(r"\w+::\w+(\.\w+)?", name) for name in kernels.operators)
    assert kernels.backends == ()
    assert read_registrations(libraries / "libexecutorch_backend_xnnpack.so").backends == ("XnnpackBackend",)
    assert read_registrations(libraries / "libexecutorch_threadpool.so").operators == ()
