"""A template: a lowered program with a hole for each constant that is made from weights, and the places of names that change with them.

What of a program depends on its weights was found by comparing programs of equal graph (ExecuTorch 1.5.1): the constants' bytes, which are
stored raw; the keys of named data, which are hashes of these bytes and stand in the program and in XNNPACK's blobs; and the names of
methods. Everything else, offsets included, follows from the graph and from the lengths of the names.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from etcli.common.errors import EtcliError, ExportError
from etcli.common.files import atomic_writer
from etcli.manifests.base import Manifest, Part

DIGEST_CHARACTERS = 64
"""A key of named data holds a SHA-256 in hex."""

_FACTS, _SKELETON = "template.json", "skeleton.bin"
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Refused(Exception):
    """A program cannot be made into a template, or weights cannot be put into one: lower the ordinary way. The text says why."""


class Hole(Part):
    """A constant made from weights.

    Attributes:
        parameter, part: what fills it, as `quantizers.base.StoredBlob` names it.
        offset: place in the file.
        size: bytes.
        digests: places in the skeleton where the hex SHA-256 of these bytes stands.
    """

    parameter: str
    part: str
    offset: int
    size: int
    digests: tuple[int, ...]


class NamePlaces(Part):
    """A method's name in the template, and the places in the skeleton where it stands."""

    name: str
    places: tuple[int, ...]


class Template(Manifest):
    """A program without weights.

    Attributes:
        methods: in the order of the work's.
        holes: by rising offset.
        fixed: hex SHA-256 of every constant that is not made from weights. Weights equal to one of them would have been written once.
        size: of the whole file in bytes.
    """

    methods: tuple[NamePlaces, ...]
    holes: tuple[Hole, ...]
    fixed: tuple[str, ...]
    size: int


def save_template(path: Path, template: Template, skeleton: bytes) -> None:
    """Write both into one file, equal ones as equal bytes. `skeleton` is the program's file with the holes cut out."""
    with atomic_writer(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in ((_FACTS, template.to_text().encode()), (_SKELETON, skeleton)):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, compress_type=zipfile.ZIP_DEFLATED)


def load_template(path: Path) -> tuple[Template, bytes]:
    """What `save_template` wrote.

    Raises:
        Refused: it is not there, damaged, or of another version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            template = Template.parse(archive.read(_FACTS), error=ExportError)
            skeleton = archive.read(_SKELETON)
    except (OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, EtcliError) as error:
        raise Refused(f"the template cannot be read: {error}") from None
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:  # of a header that asks for other compression or a password
        raise Refused(f"the template cannot be read: {error}") from None
    if len(skeleton) != template.size - sum(hole.size for hole in template.holes):
        raise Refused("the template contradicts itself")
    return template, skeleton
