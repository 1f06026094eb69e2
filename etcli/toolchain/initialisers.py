"""Which texts the static initialisers of an ELF file name in their code, found without running it and without symbols.

`EXECUTORCH_LIBRARY` registers an operator in code: a static initialiser makes a `Kernel` of the operator's name and function on its stack and
calls `register_kernels`. No table is left behind, but the initialiser has to form the name's address, relative to its own place as
position-independent code does: `lea` on x86-64, `adrp` and `add` on AArch64, or a load of the address from a constant that the loader relocates.
Initialisers stand in `.init_array`; where a function ends is told by the table of functions in `.eh_frame_hdr`, which stripping leaves.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

_MAX_FUNCTION = 1 << 20
_DEEPEST = 4  # calls from an initialiser down
_LEA = re.compile(rb"(?s)(?=[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4}))")
"""The byte that says `disp32(%rip)`, and the displacement, which counts from the next instruction."""
_CALL = re.compile(rb"(?s)(?=[\xe8\xe9](.{4})|\xeb(.))")
"""`call` or `jmp` and the distance from the next instruction, in 4 bytes or 1."""


@dataclass(frozen=True)
class Code:
    """A section of machine code: its address and bytes."""

    address: int
    content: bytes


def named_in_initialisers(elf: ELFFile, pointers: Mapping[int, int], text_at: Callable[[int], str | None]) -> list[str]:
    """The texts that static initialisers and what they call name, each once for every function that does: one may name it in a message too.

    Args:
        pointers: address of every word that the loader fills, and what with.
        text_at: the text at an address, if it is one that is looked for.
    """
    array = elf.get_section_by_name(".init_array")
    starts = _function_starts(elf)
    find = {"EM_X86_64": _x86_addresses, "EM_AARCH64": _arm_addresses}.get(elf["e_machine"])
    if array is None or not starts or find is None:
        return []
    code = [
        Code(section["sh_addr"], section.data())
        for section in elf.iter_sections("SHT_PROGBITS")
        if section["sh_flags"] & 4  # SHF_EXECINSTR
    ]
    # Of the words that there are those inside, since a damaged file may give the array any size.
    inside = range(array["sh_addr"], array["sh_addr"] + array["sh_size"], 8)
    entries = [target for place, target in sorted(pointers.items()) if place in inside]
    found: list[str] = []
    seen: set[int] = set()
    calls = [entries]
    while calls and len(calls) <= _DEEPEST:
        called: list[int] = []
        for start in calls[-1]:
            body = _body(code, starts, start)
            if body is None or start in seen:
                continue
            seen.add(start)
            named = (text_at(address) or text_at(pointers.get(address, -1)) for address in find(body))
            found += dict.fromkeys(text for text in named if text is not None)
            called += _called(elf["e_machine"], body, starts)
        calls.append(called)
    return found


def _function_starts(elf: ELFFile) -> list[int]:
    """The functions' addresses, sorted, from the search table of `.eh_frame_hdr`: pairs of 32-bit offsets from its own start."""
    header = elf.get_section_by_name(".eh_frame_hdr")
    if header is None:
        return []
    data, address = header.data(), header["sh_addr"]
    if len(data) < 12 or data[0] != 1 or data[2:4] != b"\x03\x3b":  # count as udata4, table as datarel sdata4
        return []
    count = min(struct.unpack_from("<I", data, 8)[0], (len(data) - 12) // 8)
    return sorted({address + offset for offset, _ in struct.iter_unpack("<ii", data[12 : 12 + 8 * count])})


def _body(code: list[Code], starts: list[int], start: int) -> Code | None:
    """The function at `start`, up to the next one."""
    index = bisect.bisect_left(starts, start)
    if index == len(starts) or starts[index] != start:
        return None
    for section in code:
        offset = start - section.address
        if 0 <= offset < len(section.content):
            end = starts[index + 1] if index + 1 < len(starts) else section.address + len(section.content)
            return Code(start, section.content[offset : min(end - section.address, offset + _MAX_FUNCTION)])
    return None


def _called(machine: str, body: Code | None, starts: list[int]) -> list[int]:
    """Functions of the file that an initialiser calls: compilers put the work of one into another unless they optimise."""
    if body is None:
        return []
    known = set(starts)
    if machine == "EM_X86_64":
        targets = (
            body.address + match.start() + 1 + len(distance) + int.from_bytes(distance, "little", signed=True)
            for match in _CALL.finditer(body.content)
            for distance in (match[1] or match[2],)
        )
    else:
        targets = (
            body.address + 4 * index + 4 * ((word & 0x3FFFFFF) - ((word & 0x2000000) << 1))
            for index, word in enumerate(_words(body))
            if word & 0x7C000000 == 0x14000000  # b, bl
        )
    return [target for target in dict.fromkeys(targets) if target in known and target != body.address]


def _x86_addresses(body: Code) -> Iterator[int]:
    for match in _LEA.finditer(body.content):
        yield body.address + match.start() + 5 + struct.unpack("<i", match[1])[0]


def _arm_addresses(body: Code) -> Iterator[int]:
    pages: dict[int, int] = {}
    for index, word in enumerate(_words(body)):
        here = body.address + 4 * index
        target, base, immediate = word & 31, word >> 5 & 31, word >> 10 & 0xFFF
        if word & 0x1F000000 == 0x10000000:  # adr, adrp
            offset = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
            offset -= (offset & 0x100000) << 1
            if word >> 31:
                pages[target] = (here & ~0xFFF) + (offset << 12)
            else:
                yield here + offset
        elif base not in pages:
            continue
        elif word & 0xFFC00000 == 0x91000000:  # add x, x, #imm
            yield pages[base] + immediate
        elif word & 0xFFC00000 in (0xF9400000, 0xFD400000):  # ldr x or d
            yield pages[base] + 8 * immediate
        elif word & 0xFFC00000 == 0x3DC00000:  # ldr q
            yield pages[base] + 16 * immediate
            yield pages[base] + 16 * immediate + 8


def _words(body: Code) -> Iterator[int]:
    whole = body.content[: len(body.content) // 4 * 4]
    return (word for (word,) in struct.iter_unpack("<I", whole))
