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
from etcli.tables.operators import ATTENTION, read_operators
from etcli.tables.targets import load_targets
from etcli.toolchain import compilers

HOST = load_targets()["host"]
LIBRARY = read_operators(asset_dir("native") / ATTENTION)


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
@pytest.mark.parametrize("source", LIBRARY.special(HOST.triple))
def test_a_version_offers_its_own_function_and_nothing_else(source: str, level: str, tmp_path: Path) -> None:
    flags = LIBRARY.special(HOST.triple)[source]
    output = tmp_path / "version.o"
    argv = [compilers.verify(HOST).path, "-std=c++17", level, *flags, "-c", LIBRARY.root / source, "-o", output]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    with output.open("rb") as file:
        [table] = [section for section in ELFFile(file).iter_sections() if isinstance(section, SymbolTableSection)]
        seen_outside = [
            symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol["st_shndx"] != "SHN_UNDEF"
        ]
    [only] = seen_outside
    assert Path(source).stem in only
