"""What a file or folder is and holds, told by its content; nothing of it is run and no tensor is read."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from etcli.build.audit.one_file import FileAudit, audit_file
from etcli.build.described import STAGE
from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.layout import expected_shapes
from etcli.checkpoint.opening import open_checkpoint, recognised
from etcli.common.errors import EtcliError, UsageError
from etcli.manifests.base import FileEntry
from etcli.manifests.build import BuildManifest, ElfFacts
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import quality_remarks
from etcli.output.units import counted
from etcli.pte.facts import ProgramFacts
from etcli.pte.read import read_program
from etcli.recipe.outdated import MANIFEST
from etcli.recipe.written import shorten
from etcli.toolchain.elf import is_elf
from etcli.toolchain.registrations import Registrations
from etcli.verbs.archive import is_packed
from etcli.verbs.packed import PackedFacts, read_packed
from etcli.verbs.provision import Provision, provision

_FLATBUFFER_IDENTIFIER = slice(4, 6)


@dataclass(frozen=True)
class AqlmFacts:
    """What AQLM does to a checkpoint's linears; the configuration has the names of those that it leaves plain.

    Attributes:
        scheme: codebooks by bits of a code, such as `2x8`.
        linears: how many are quantised.
        code_bits: bits of codes for each of their weights.
        stored_bits: the same with codebooks and scales.
    """

    scheme: str
    linears: int
    code_bits: float
    stored_bits: float


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint's numbers; `parameters` counts weights, `stored_bytes` what they take in the file, `remarks` is what was assumed."""

    format: str
    config: ModelConfig
    tensors: int
    parameters: int
    stored_bytes: int
    dtypes: dict[str, int]
    unused: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    aqlm: AqlmFacts | None = None


@dataclass(frozen=True)
class Inspection:
    """`kind` says which of the facts is set; `registered` is what an ELF file registers with ExecuTorch when it is loaded.

    `packed` is the archive of a packed bundle, which is read where it is. `provision` is what of a program's or bundle's operators and delegates
    a runner has, None where no runner was there to look into. `damaged` is what of the files that a manifest names is missing or of another size.
    """

    path: Path
    kind: Literal["program", "bundle", "build", "elf", "checkpoint"]
    program: ProgramFacts | None = None
    bundle: BundleManifest | None = None
    build: BuildManifest | None = None
    elf: ElfFacts | None = None
    registered: Registrations | None = None
    audit: FileAudit | None = None
    checkpoint: CheckpointFacts | None = None
    provision: Provision | None = None
    packed: PackedFacts | None = None
    damaged: tuple[str, ...] = ()


def inspect(path: Path, build: Path | None = None) -> Inspection:
    """Look into `path`. What a program or bundle needs is held against the build in the folder `build`, or else against etcli's own runner.

    Raises:
        UsageError: there is nothing there, or nothing that etcli knows; `build` is no build's folder.
        EtcliError: it is of a known kind but damaged.
    """
    found = _inspect(path)
    if found.program is not None:
        needed = {*found.program.operators, *found.program.backends}
    elif found.bundle is not None:
        methods = [method for chunk in found.bundle.chunks for file in chunk.files for method in file.methods]
        needed = {name for method in methods for name in (*method.operators, *method.backends)}
    else:
        return found
    return replace(found, provision=provision(needed, build))


def _inspect(path: Path) -> Inspection:
    if not _exists(path):
        raise UsageError(
            f"{path} leads to nothing that is there" if path.is_symlink() else f"{path} does not exist",
            code="inspect.missing",
            hint="Name a .pte, a bundle, a build, an ELF file or a checkpoint.",
        )
    if path.is_dir():
        if (path / MANIFEST).is_file():
            return _stage_output(path)
        if not recognised(path) and (found := _made_by_stages(path)):
            raise UsageError(
                f"{path} is a workspace folder, which holds {counted(len(found), 'thing')} to look into",
                code="inspect.workspace",
                hint="\n".join(shlex.join(["etcli", "inspect", str(folder)]) for folder in found),
            )
        return _checkpoint(path)
    if not path.is_file():
        raise UsageError(
            f"{path} is neither a file nor a folder",
            code="inspect.unknown",
            hint="Save what comes through it as a file.",
        )
    head = _head(path)
    if head[_FLATBUFFER_IDENTIFIER] == b"ET":
        return Inspection(path, "program", program=read_program(path))
    if is_elf(path):
        audit = audit_file(path)
        return Inspection(path, "elf", elf=audit.elf, registered=audit.registered, audit=audit)
    if is_packed(path):
        bundle, packed = read_packed(path)
        return Inspection(path, "bundle", bundle=bundle, packed=packed)
    return _checkpoint(path)


def _made_by_stages(path: Path) -> list[Path]:
    """The bundles and builds in a recipe's folder of a workspace, in the workspace itself, or in the folder of a recipe's builds."""
    places = ("bundle", "build/*", "*/bundle", "*/build/*", *(("*",) if path.name == "build" else ()))
    return [manifest.parent for place in places for manifest in sorted(path.glob(f"{place}/{MANIFEST}"))]


def _stage_output(path: Path) -> Inspection:
    """A bundle or a build, told apart by the fields that only one of them has."""
    try:
        fields = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        fields = None
    keys = set(fields) if isinstance(fields, dict) else set()
    if "stage" in keys and "chunks" not in keys:
        build = BuildManifest.read(path / MANIFEST)
        return Inspection(path, "build", build=build, damaged=_damaged(path / STAGE, build.stage))
    if keys.isdisjoint(BundleManifest.model_fields.keys() - {"schema_version", "name"}):
        raise UsageError(
            f"{MANIFEST} is neither a bundle's nor a build's",
            code="inspect.manifest",
            hint="Name a bundle folder (.etcli/NAME/bundle) or a build folder (.etcli/NAME/build/TARGET).",
            file=path / MANIFEST,
        )
    bundle = BundleManifest.read(path / MANIFEST)
    return Inspection(path, "bundle", bundle=bundle, damaged=_damaged(path, bundle.files()))


def _damaged(folder: Path, files: Iterable[FileEntry]) -> tuple[str, ...]:
    """What of `files` is missing or of another size, without reading any."""
    found = []
    for entry in files:
        try:
            size = (folder / entry.path).stat().st_size
        except OSError as error:
            found.append(f"{entry.path}: {error.strerror}")
        else:
            if size != entry.size:
                found.append(f"{entry.path} has {size:,} bytes, the manifest says {entry.size:,}")
    return tuple(found)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise UsageError(
            f"{shorten(str(path))} cannot be reached: {error.strerror}",
            code="inspect.unreadable",
            hint="Check the path, and that you may read every folder on the way to it.",
        ) from None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", code="inspect.unreadable", hint="Check its permissions."
        ) from None


def _checkpoint(path: Path) -> Inspection:
    problems = header_problems(path)
    if problems:
        if (path.is_file() and not path.stat().st_size) or problems[0].code == "checkpoint.unknown":
            raise UsageError(
                f"{path} is nothing that etcli knows",
                code="inspect.unknown",
                hint="It looks into .pte files, bundles, builds, ELF files, and checkpoints (files, and Hugging Face's and Meta's folders).",
            )
        raise EtcliError.many(problems)
    checkpoint = open_checkpoint(path)
    dtypes: dict[str, int] = {}
    for info in checkpoint.tensors.values():
        dtypes[info.dtype] = dtypes.get(info.dtype, 0) + 1
    plain = expected_shapes(checkpoint.config.model_copy(update={"aqlm": None}))
    facts = CheckpointFacts(
        format=checkpoint.format,
        config=checkpoint.config,
        tensors=len(checkpoint.tensors),
        parameters=sum(map(math.prod, plain.values())),
        stored_bytes=sum(info.nbytes for info in checkpoint.tensors.values()),
        dtypes=dtypes,
        unused=checkpoint.unused,
        remarks=(*checkpoint.remarks, *quality_remarks(checkpoint.quality)),
        aqlm=_aqlm(checkpoint, plain),
    )
    return Inspection(path, "checkpoint", checkpoint=facts)


def _aqlm(checkpoint: Checkpoint, plain: Mapping[str, tuple[int, ...]]) -> AqlmFacts | None:
    """What AQLM does to `checkpoint`, whose weights would have the shapes `plain` without it; None where it does nothing."""
    aqlm = checkpoint.config.aqlm
    if aqlm is None:
        return None
    replaced = [name.removesuffix("weight") for name in plain if name not in checkpoint.tensors]
    weights = sum(math.prod(plain[f"{name}weight"]) for name in replaced) or 1
    bytes_of = {
        part: sum(checkpoint.tensors[name + part].nbytes for name in replaced)
        for part in ("codes", "codebooks", "scales")
    }
    return AqlmFacts(
        scheme=aqlm.scheme,
        linears=len(replaced),
        code_bits=8 * bytes_of["codes"] / weights,
        stored_bits=8 * sum(bytes_of.values()) / weights,
    )
