"""How often the objects of a static library ask for registration, against how many operators they name.

In a linked file an operator that one source registers twice is not to be told from one that its source also names in a message
(`toolchain/initialisers.py`). An object still has a relocation for each call of `register_kernels`, so more calls than names are a repetition.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from etcli.common.errors import EtcliError, UsageError
from etcli.toolchain.archives import members

_FUNCTION = "register_kernels"
# R_X86_64_PC32, PLT32; R_AARCH64_JUMP26, CALL26
_CALLS = {"EM_X86_64": (2, 4), "EM_AARCH64": (282, 283)}
_OPERATOR = re.compile(rb"[A-Za-z_]\w*::\w+(?:\.\w+)?(?=\0)")


@dataclass(frozen=True)
class Repetition:
    """An object that calls `register_kernels` `calls` times and names fewer operators, `operators`."""

    calls: int
    operators: tuple[str, ...]


def repetitions(library: Path, *, error: type[EtcliError] = UsageError) -> Iterator[Repetition]:
    """The objects of the static library at `library` with more calls than names. One operator for several types is such a one too.

    Raises:
        EtcliError: of class `error`, see `archives.members`.
    """
    for _, content in members(library, error=error):
        try:
            found = _counted(ELFFile(io.BytesIO(content)))
        except (ELFError, ValueError, KeyError):
            continue  # bitcode, or an index of another kind
        if found.operators and found.calls > len(found.operators):
            yield found


def _counted(elf: ELFFile) -> Repetition:
    kinds = _CALLS.get(elf["e_machine"], ())
    calls = 0
    operators: set[str] = set()
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection):
            symbols = elf.get_section(section["sh_link"])
            calls += sum(
                relocation["r_info_type"] in kinds and _FUNCTION in symbols.get_symbol(relocation["r_info_sym"]).name
                for relocation in section.iter_relocations()
            )
        elif section["sh_type"] == "SHT_PROGBITS" and section["sh_flags"] & SH_FLAGS.SHF_ALLOC:
            operators |= {name.decode() for name in _OPERATOR.findall(section.data())}
    return Repetition(calls, tuple(sorted(operators)))
