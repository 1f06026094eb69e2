"""Which operators and delegates an ELF file registers with ExecuTorch, read from its registration tables without running it.

A kernel library hands `register_kernels` a static array of `Kernel` (`runtime/kernel/operator_registry.h`): a pointer to the operator's
name, one to the kernel key (null for a fallback) and one to the function. A delegate hands `register_backend` a static `Backend`
(`runtime/backend/interface.h`): a pointer to its name and one to the object. In a shared library or position-independent program every such
pointer is a relocation, so a name whose neighbours point to code (or to a writable object) is a registration and not just some text.
`EXECUTORCH_LIBRARY` leaves no such table; what it registers is read from the code of static initialisers (`toolchain/initialisers.py`). This
works for any target on any machine; on the host it gives exactly what the registry itself lists.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from etcli.common.errors import EtcliError, UsageError
from etcli.toolchain.elf import opened
from etcli.toolchain.initialisers import named_in_initialisers

_OPERATOR = re.compile(rb"[A-Za-z_]\w*::\w+(?:\.\w+)?\0")
# Words that C++ libraries begin messages with, as `basic_string::append`, which stand in initialisers too; no operator's namespace.
_CPP_WORDS = re.compile(
    r"(std|basic_\w+|vector|deque|list|array|bitset|string|(unordered_)?(multi)?(map|set)|optional|variant|any|regex|locale|ios_base|filesystem|"
    r"thread|mutex|future|promise|function|random_device)::"
)
_BACKEND = re.compile(rb"[A-Za-z]\w*Backend\0")
_POINTER = 8
_KERNEL_KEY, _KERNEL_FUNCTION = _POINTER, 2 * _POINTER
_BACKEND_OBJECT = _POINTER
# R_X86_64_RELATIVE, R_AARCH64_RELATIVE: the addend is the address. The others (64, GLOB_DAT) add a symbol's value.
_RELATIVE = {"EM_X86_64": 8, "EM_AARCH64": 1027}
_SYMBOLIC = {"EM_X86_64": (1, 6), "EM_AARCH64": (257, 1025)}
_EXECUTABLE, _WRITABLE = SH_FLAGS.SHF_EXECINSTR, SH_FLAGS.SHF_WRITE


@dataclass(frozen=True)
class Registrations:
    """Names in alphabetical order: operators as `aten::add.out`, delegates as `XnnpackBackend`.

    An operator is named as often as it is registered for any type and layout; the runtime ends a process in which that happens twice.
    """

    operators: tuple[str, ...]
    backends: tuple[str, ...]


@dataclass(frozen=True)
class _Load:
    address: int
    size: int
    offset: int
    flags: int


def read_registrations(path: Path, *, error: type[EtcliError] = UsageError) -> Registrations:
    """What the ELF file at `path` registers when it is loaded. A file of a machine that is no target registers nothing we know of.

    Raises:
        EtcliError: of class `error`: it is missing or damaged.
    """
    with opened(path, error=error) as elf:
        data = path.read_bytes()
        # By section: linkers for AArch64 put constants and code into one segment.
        memory = [
            _Load(section["sh_addr"], section["sh_size"], section["sh_offset"], section["sh_flags"])
            for section in elf.iter_sections()
            if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and not section["sh_flags"] & SH_FLAGS.SHF_TLS
        ]
        pointers = _pointers(elf)
        operators: list[str] = []
        with_key: set[str] = set()
        tabled: set[int] = set()
        backends: set[str] = set()
        for place, target in pointers.items():
            text = _holding(memory, target)
            if text is None or text.flags & (_EXECUTABLE | _WRITABLE):
                continue
            start = text.offset + target - text.address
            if _points_to(memory, pointers.get(place + _KERNEL_FUNCTION), _EXECUTABLE) and (
                found := _OPERATOR.match(data, start)
            ):
                name = found[0][:-1].decode()
                tabled.add(place)
                if place + _KERNEL_KEY in pointers:
                    with_key.add(name)
                else:
                    operators.append(name)
            if _points_to(memory, pointers.get(place + _BACKEND_OBJECT), _WRITABLE) and (
                found := _BACKEND.match(data, start)
            ):
                backends.add(found[0][:-1].decode())
        # An initialiser that hands over a table has its address, which is where the first name's pointer is: that one was counted.
        loose = {place: target for place, target in pointers.items() if place not in tabled}
        operators += named_in_initialisers(elf, loose, lambda address: _operator_name(memory, data, address))
        return Registrations(tuple(sorted([*operators, *(with_key - set(operators))])), tuple(sorted(backends)))


def _operator_name(memory: list[_Load], data: bytes, address: int) -> str | None:
    """The constant at `address`, if it is an operator's name and nothing else."""
    text = _holding(memory, address)
    if text is None or text.flags & (_EXECUTABLE | _WRITABLE):
        return None
    found = _OPERATOR.match(data, text.offset + address - text.address)
    name = found[0][:-1].decode() if found else None
    return None if name is None or _CPP_WORDS.match(name) else name


def _pointers(elf: ELFFile) -> dict[int, int]:
    """Address of every word that the loader fills with an address inside this file, and that address."""
    machine = elf["e_machine"]
    relative, symbolic = _RELATIVE.get(machine), _SYMBOLIC.get(machine, ())
    symbols = elf.get_section_by_name(".dynsym")
    found: dict[int, int] = {}
    for section in elf.iter_sections("SHT_RELA"):
        for place, info, addend in struct.iter_unpack("<QQq", section.data()):
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            if kind == relative:
                found[place] = addend
            elif kind in symbolic and symbols is not None and (value := symbols.get_symbol(symbol)["st_value"]):
                found[place] = value + addend
    return found


def _holding(loads: list[_Load], address: int) -> _Load | None:
    return next((load for load in loads if load.address <= address < load.address + load.size), None)


def _points_to(loads: list[_Load], address: int | None, flag: int) -> bool:
    load = _holding(loads, address) if address is not None else None
    return load is not None and bool(load.flags & flag)
