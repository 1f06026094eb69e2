"""ELF files read with pyelftools: what the loader of a device will ask of them."""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct.core import ConstructError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_DT_FLAGS
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import InterpSegment, NoteSegment

from etcli.common.errors import EtcliError, UsageError
from etcli.manifests.build import ElfFacts

# What pyelftools lets through when a header field of a damaged file points anywhere.
_DAMAGED = (
    ELFError,
    DWARFError,
    ConstructError,
    struct.error,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
    OverflowError,
    MemoryError,
    AssertionError,
    OSError,
)


def is_elf(path: Path) -> bool:
    """Whether the file starts with ELF's magic number. A missing or unreadable file is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
    return False


@contextlib.contextmanager
def opened(path: Path, *, error: type[EtcliError] = UsageError) -> Iterator[ELFFile]:
    """The file as an `ELFFile`; whatever pyelftools stumbles over inside the block becomes one clear error.

    Raises:
        EtcliError: of class `error`, code `elf.missing` or `elf.invalid`.
    """
    try:
        file = path.open("rb")
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}", code="elf.missing", file=path) from None
    with file:
        try:
            yield ELFFile(file)
        except _DAMAGED as problem:
            raise error(
                f"{path} is not a readable ELF file: {str(problem) or 'its parts contradict one another'}",
                code="elf.invalid",
                hint="The file is damaged or cut short; make it again.",
                file=path,
            ) from None


def read_elf(path: Path, *, error: type[EtcliError] = UsageError) -> ElfFacts:
    """Machine, interpreter, soname, needed libraries, run path, smallest PT_LOAD alignment and Android's note of an executable or shared library.

    `run_path` is DT_RUNPATH, or DT_RPATH where there is no other, as written in the file.

    Raises:
        EtcliError: of class `error`: there is no such file, it is no ELF file, it is damaged, or it has nothing to load.
    """
    with opened(path, error=error) as elf:
        interpreter: str | None = None
        soname: str | None = None
        run_path: str | None = None
        rpath: str | None = None
        needed: list[str] = []
        alignments: list[int] = []
        text_relocations = False
        android: tuple[int, str | None] | None = None
        for segment in elf.iter_segments():
            if segment["p_type"] == "PT_LOAD":
                alignments.append(segment["p_align"])
            elif isinstance(segment, NoteSegment):
                android = android or _android_note(segment)
            elif isinstance(segment, InterpSegment):
                interpreter = segment.get_interp_name()
            elif isinstance(segment, DynamicSegment):
                for tag in segment.iter_tags():
                    kind = tag.entry.d_tag
                    if kind == "DT_NEEDED":
                        needed.append(tag.needed)
                    elif kind == "DT_SONAME":
                        soname = tag.soname
                    elif kind == "DT_RUNPATH":
                        run_path = tag.runpath
                    elif kind == "DT_RPATH":
                        rpath = tag.rpath
                    elif kind == "DT_TEXTREL" or (kind == "DT_FLAGS" and tag.entry.d_val & ENUM_DT_FLAGS["DF_TEXTREL"]):
                        text_relocations = True
        if not alignments:
            raise ValueError("it has no segment to load; is it an object file?")
        return ElfFacts(
            machine=str(elf["e_machine"]),
            interpreter=interpreter,
            soname=soname,
            needed=tuple(needed),
            run_path=run_path if run_path is not None else rpath,
            load_alignment=min(alignments),
            kind=str(elf["e_type"]),
            text_relocations=text_relocations,
            android_api=android[0] if android is not None else None,
            ndk=android[1] if android is not None else None,
        )


def _android_note(segment: NoteSegment) -> tuple[int, str | None] | None:
    """API level and NDK release of `.note.android.ident` (crtbrand.S of bionic: a 32-bit number, then two texts of 64 bytes), or None."""
    for note in segment.iter_notes():
        if note["n_name"] == "Android" and note["n_descsz"] >= 4:
            data = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
            content = data if isinstance(data, bytes) else str(data).encode("latin-1")
            release = content[4:68].split(b"\0")[0].decode("ascii", "replace")
            return int.from_bytes(content[:4], "little"), release or None
    return None


@dataclass(frozen=True)
class SymbolVersions:
    """Symbol versions of an ELF file: those it asks of each library by name, and those it defines itself."""

    needed: Mapping[str, frozenset[str]]
    defined: frozenset[str]


def read_symbol_versions(path: Path, *, error: type[EtcliError] = UsageError) -> SymbolVersions:
    """GNU symbol versions of the file; empty where it uses none.

    Raises:
        EtcliError: of class `error`: the file is missing or damaged.
    """
    with opened(path, error=error) as elf:
        needed: dict[str, frozenset[str]] = {}
        defined: set[str] = set()
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for library, versions in section.iter_versions():
                    needed[library.name] = frozenset(version.name for version in versions)
            elif isinstance(section, GNUVerDefSection):
                for _, names in section.iter_versions():
                    defined.update(name.name for name in itertools.islice(names, 1))
        return SymbolVersions(needed, frozenset(defined))


def defined_symbols(path: Path, *, error: type[EtcliError] = UsageError) -> frozenset[str]:
    """Names that the file defines for others: functions and data in its dynamic symbol table, as `nm -D --defined-only` lists them.

    Raises:
        EtcliError: of class `error`: the file is missing or damaged, or its symbols cannot be read.
    """
    with opened(path, error=error) as elf:
        table = elf.get_section_by_name(".dynsym")
        if not isinstance(table, SymbolTableSection):
            return frozenset()
        return frozenset(
            symbol.name for symbol in table.iter_symbols() if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
        )


@dataclass(frozen=True)
class DynamicSymbols:
    """Names in a file's dynamic symbol table: those that it defines for others, and those that others have to define (weak ones left out)."""

    defined: frozenset[str]
    undefined: frozenset[str]


def read_dynamic_symbols(path: Path, *, error: type[EtcliError] = UsageError) -> DynamicSymbols:
    """The dynamic symbol table, found as a loader finds it, so that a file without sections has one too; empty where there is none.

    Raises:
        EtcliError: of class `error`: the file is missing or damaged.
    """
    defined: set[str] = set()
    undefined: set[str] = set()
    with opened(path, error=error) as elf:
        for segment in elf.iter_segments():
            if isinstance(segment, DynamicSegment):
                for symbol in segment.iter_symbols():
                    if symbol["st_shndx"] != "SHN_UNDEF":
                        defined.add(symbol.name)
                    elif symbol["st_info"]["bind"] != "STB_WEAK":
                        undefined.add(symbol.name)
    return DynamicSymbols(frozenset(defined - {""}), frozenset(undefined - {""}))
