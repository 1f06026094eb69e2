"""Operators registered in code, as EXECUTORCH_LIBRARY does, are read from files of either machine, however they were compiled."""

from __future__ import annotations

import contextlib
import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from etcli.common.errors import UsageError
from etcli.toolchain.registrations import read_registrations

COMPILERS = ("g++", "aarch64-linux-gnu-g++")
# ExecuTorch's own classes in small: what matters is that a Kernel is made while the program starts.
HEADER = """
struct Kernel { const char* name; const char* key; void (*run)(); Kernel(const char* n, void (*f)()) : name(n), key(nullptr), run(f) {} };
template <unsigned long N> struct Span { const Kernel* data; unsigned long size; };
int register_kernels(const Kernel* data, unsigned long size);
inline int register_kernel(const Kernel& kernel) { return register_kernels(&kernel, 1); }
#define LIBRARY(ns, op, f) static auto registered_##f = register_kernel(Kernel(#ns "::" op, f));
"""
BODY = """
extern void log(const char*);
static void twice() { log("shout::only_logged.out"); }
static void thrice() { log("basic_string::append"); }
LIBRARY(shout, "twice.out", twice)
LIBRARY(shout, "thrice", thrice)
static int warned = (log("basic_string::append"), log("not an::operator.out at all"), 1);
"""


def shared(path: Path, text: str, compiler: str, *flags: str) -> Path:
    argv = [compiler, "-x", "c++", "-", "-shared", "-fPIC", "-o", path, *flags]
    subprocess.run(argv, input=HEADER + text, text=True, check=True)
    return path


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3", "-Os"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_in_initialisers(tmp_path: Path, compiler: str, level: str) -> None:
    found = read_registrations(shared(tmp_path / "lib.so", BODY, compiler, level, "-s"))
    assert found.operators == ("shout::thrice", "shout::twice.out")
    assert found.backends == ()


@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_that_are_handed_through_functions(tmp_path: Path, compiler: str, level: str) -> None:
    """What would be inlined is not: the initialiser calls, or jumps to, functions that name the operator."""
    text = BODY + (
        "static Kernel make(const char* name, void (*f)()) { return Kernel(name, f); }\n"
        'static int made(void (*f)()) { return register_kernel(make("shout::made.out", f)); }\n'
        "static int three = made(twice) + 1;\n"
    )
    found = read_registrations(shared(tmp_path / "lib.so", text, compiler, level, "-fno-inline", "-s"))
    assert found.operators == ("shout::made.out", "shout::thrice", "shout::twice.out")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_name_in_a_message_counts_as_nothing_more(tmp_path: Path, compiler: str) -> None:
    text = """
    void log(const char*);
    static void f() {}
    static int done = (log("shout::twice.out"), register_kernel(Kernel("shout::twice.out", f)));
    """
    for level in ("-O0", "-O2"):
        assert read_registrations(shared(tmp_path / "lib.so", text, compiler, level)).operators == ("shout::twice.out",)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_name_in_two_sources_is_there_twice(tmp_path: Path, compiler: str) -> None:
    objects = []
    for index in range(2):
        objects.append(str(tmp_path / f"{index}.o"))
        text = f'{HEADER}\nstatic void f() {{}}\nLIBRARY(shout, "twice.out", f)\n'
        subprocess.run(
            [compiler, "-x", "c++", "-", "-O2", "-fPIC", "-c", "-o", objects[-1]], input=text, text=True, check=True
        )
    found = read_registrations(shared(tmp_path / "lib.so", "", compiler, "-x", "none", *objects, "-s"))
    assert found.operators == ("shout::twice.out", "shout::twice.out")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_table_that_an_initialiser_hands_over_counts_once(tmp_path: Path, compiler: str) -> None:
    text = """
    struct Plain { const char* name; const char* key; void (*run)(); };
    int register_all(const Plain*, unsigned long);
    static void f() {}
    static const Plain kernels[] = {{"shout::twice.out", nullptr, f}, {"shout::thrice.out", nullptr, f}};
    static int done = register_all(kernels, 2);
    """
    assert read_registrations(shared(tmp_path / "lib.so", text, compiler, "-O2")).operators == (
        "shout::thrice.out",
        "shout::twice.out",
    )


def test_a_name_that_follows_a_constant_without_an_end(tmp_path: Path) -> None:
    """Where a section of texts follows one of numbers, no zero stands before the first text."""
    text = BODY + "extern const double wide[2]; const double wide[2] = {1.1, -1.3e300};\n"
    script = tmp_path / "s.ld"
    script.write_text("SECTIONS { .rodata : { *(.rodata.cst*) *(.rodata) *(.rodata.*) } } INSERT AFTER .text;")
    found = read_registrations(shared(tmp_path / "lib.so", text, "g++", "-O2", f"-Wl,-T,{script}"))
    assert found.operators == ("shout::thrice", "shout::twice.out")


def test_damaged_tables_are_no_crash(tmp_path: Path) -> None:
    whole = shared(tmp_path / "lib.so", BODY, "g++", "-O2").read_bytes()
    for place in range(0, len(whole), 97):
        (tmp_path / "bad.so").write_bytes(whole[:place] + b"\xff" * 16 + whole[place + 16 :])
        with contextlib.suppress(UsageError):
            read_registrations(tmp_path / "bad.so")


@pytest.mark.timeout(60)
def test_an_array_of_initialisers_without_an_end_is_no_hang(tmp_path: Path) -> None:
    path = shared(tmp_path / "lib.so", BODY, "g++", "-O2")
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        elf = ELFFile(file)
        header = elf["e_shoff"] + elf.get_section_index(".init_array") * elf["e_shentsize"]
    struct.pack_into("<Q", data, header + 32, 1 << 60)  # sh_size
    path.write_bytes(data)
    assert read_registrations(path).operators == ("shout::thrice", "shout::twice.out")
