"""Puts weights into a template: the file that lowering them the ordinary way would give, without torch's compiler or ExecuTorch's exporter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etcli.export.templates.template import DIGEST_CHARACTERS, Hole, Refused, Template, load_template

if TYPE_CHECKING:
    from etcli.export.quantizers.base import StoredBlob


def fill(template: Path, path: Path, methods: Sequence[str], blobs: Iterable[StoredBlob]) -> str:
    """Write the program of `template` with the constants `blobs` into `path`; returns the hex SHA-256 of what was written.

    Args:
        methods: names of the methods in the order of the template's, each as long as the template's.

    Raises:
        Refused: the template is damaged, another graph's, or of names of other lengths; or two constants are equal: ordinary lowering
            writes equal constants once.
    """
    facts, skeleton = load_template(template)
    data: dict[tuple[str, str], memoryview] = {}
    digests: dict[tuple[str, str], str] = {}
    for blob in blobs:
        where = (blob.parameter, blob.part)
        data[where] = _view(blob)
        digests[where] = hashlib.sha256(data[where]).hexdigest()
    _check(facts, data, digests, methods)
    head = _renamed(facts, skeleton, methods, digests)
    written, position, taken = hashlib.sha256(), 0, 0
    with path.open("wb") as file:
        for hole in facts.holes:
            length = hole.offset - position
            for piece in (memoryview(head)[taken : taken + length], data[hole.parameter, hole.part]):
                file.write(piece)
                written.update(piece)
            taken += length
            position = hole.offset + hole.size
        rest = memoryview(head)[taken:]
        file.write(rest)
        written.update(rest)
    return written.hexdigest()


def _view(blob: StoredBlob) -> memoryview:
    """The constant's bytes in place, without a copy of them."""
    import torch

    return blob.tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data


def _check(
    facts: Template,
    data: Mapping[tuple[str, str], memoryview],
    digests: Mapping[tuple[str, str], str],
    methods: Sequence[str],
) -> None:
    if [len(name) for name in methods] != [len(places.name) for places in facts.methods]:
        raise Refused("the template's methods have names of other lengths")
    holes: dict[tuple[str, str], Hole] = {(hole.parameter, hole.part): hole for hole in facts.holes}
    if holes.keys() != data.keys() or any(holes[where].size != data[where].nbytes for where in holes):
        raise Refused("the template is of another graph")
    seen: dict[str, str] = dict.fromkeys(facts.fixed, "a constant of the network")
    for (parameter, _), digest in digests.items():
        if digest in seen:
            raise Refused(f"{parameter} and {seen[digest]} are equal")
        seen[digest] = parameter


def _renamed(
    facts: Template, skeleton: bytes, methods: Sequence[str], digests: Mapping[tuple[str, str], str]
) -> bytearray:
    """The skeleton with the names and keys of this chunk.

    With XNNPACK's weight cache on, equal keys mean equal weights to the runtime: a key left over would give the first chunk's answers.
    """
    head = bytearray(skeleton)
    for places, name in zip(facts.methods, methods, strict=True):
        for place in places.places:
            head[place : place + len(name)] = name.encode()
    for hole in facts.holes:
        for place in hole.digests:
            head[place : place + DIGEST_CHARACTERS] = digests[hole.parameter, hole.part].encode()
    return head
