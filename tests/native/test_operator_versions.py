"""Versions of a kernel for better CPUs share no function with the rest of a program, which has to run on plain ones.

Two objects that both hold a function of one name (an inline function of a header) get one copy when they are linked, and that may be the
one that was compiled for AVX-512.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from etcli.common.assets import asset_dir
from etcli.tables.operators import AQLM, ATTENTION, read_operators
from etcli.tables.targets import load_targets
from etcli.toolchain import compilers

HOST = load_targets()["host"]
SOURCES = [
    pytest.param(library.root / source, flags, id=f"{folder}/{source}")
    for folder in (ATTENTION, AQLM)
    for library in (read_operators(asset_dir("native") / folder),)
    for source, flags in library.special(HOST.triple).items()
]


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
@pytest.mark.parametrize(("source", "flags"), SOURCES)
def test_a_version_offers_one_symbol_and_nothing_else(
    source: Path, flags: tuple[str, ...], level: str, tmp_path: Path
) -> None:
    output = tmp_path / "version.o"
    argv: list[str | Path] = [compilers.verify(HOST).path, "-std=c++17", level, *flags, "-c", source, "-o", output]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    with output.open("rb") as file:
        [table] = [section for section in ELFFile(file).iter_sections() if isinstance(section, SymbolTableSection)]
        seen_outside = [
            symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_info"]["bind"] != "STB_LOCAL"
            and symbol["st_shndx"] != "SHN_UNDEF"
            # A pointer to the C++ runtime's exception handling: data, the same everywhere.
            and not symbol.name.startswith("DW.ref.")
        ]
    [only] = seen_outside
    assert source.stem in only
