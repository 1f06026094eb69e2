"""Static libraries (`.a`): their members, and what the objects in them were compiled for and with."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from etcli.common.errors import EtcliError, UsageError

_MAGIC = b"!<arch>\n"
_THIN = b"!<thin>\n"
_HEADER = 60
_END = b"`\n"
_INDEXES = ("/", "//", "/SYM64/", "__.SYMDEF")
_CLANG = re.compile(r"clang version (\d+)")


@dataclass(frozen=True)
class ObjectFacts:
    """Of one object: the ELF machine (`EM_AARCH64`) and what compiled it, as its `.comment` says; empty where it says nothing."""

    machine: str
    compiler: str

    @property
    def clang(self) -> int | None:
        """Major version of the clang that compiled it, None where it was another compiler."""
        match = _CLANG.search(self.compiler)
        return int(match[1]) if match else None


def members(path: Path, *, error: type[EtcliError] = UsageError) -> Iterator[tuple[str, bytes]]:
    """Name and content of each member, the indexes left out. Names longer than a header holds are given as they stand there (`/123`).

    The format: `man 5 ar`, GNU and BSD variants alike as far as it is read here.

    Raises:
        EtcliError: of class `error`, code `archive.invalid`: it is no archive, holds only paths (a thin one) or is cut short.
    """

    def wrong(why: str) -> EtcliError:
        return error(f"{path} {why}", code="archive.invalid", hint="Build and install it again.", file=path)

    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
            if magic == _THIN:
                raise wrong("is a thin archive, which is of use only where it was built")
            if magic != _MAGIC:
                raise wrong("is no static library")
            while header := file.read(_HEADER):
                size = header[48:58].strip()
                if len(header) < _HEADER or header[58:] != _END or not size.isdigit():
                    raise wrong("is a damaged static library")
                content = file.read(int(size))
                if len(content) < int(size):
                    raise wrong("is cut short")
                file.seek(int(size) & 1, io.SEEK_CUR)
                name = header[:16].decode("latin-1").rstrip()
                if name not in _INDEXES:
                    yield name, content
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}", code="archive.invalid", file=path) from None


def first_object(path: Path, *, error: type[EtcliError] = UsageError) -> ObjectFacts:
    """Facts of the first ELF object in the static library at `path`; all objects of one library are compiled alike.

    Raises:
        EtcliError: of class `error`, code `archive.invalid`: see `members`, or there is none.
    """
    is_empty = True
    for _, content in members(path, error=error):
        is_empty = False
        try:
            elf = ELFFile(io.BytesIO(content))
            comment = elf.get_section_by_name(".comment")
            text = comment.data().replace(b"\0", b" ").decode("latin-1").strip() if comment is not None else ""
            return ObjectFacts(elf["e_machine"], text)
        except (ELFError, ValueError, KeyError):
            continue  # bitcode, or an index of another kind
    if is_empty:
        message, hint = f"{path} is empty: it holds no object", "Build and install it again."
    else:
        message, hint = f"{path} holds no ELF object", "Build it without link-time optimisation."
    raise error(message, code="archive.invalid", hint=hint, file=path)
