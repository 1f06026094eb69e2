"""What lies in the files of an AQLM network, held against its configuration: which linears are quantised, by which codebooks, and how codes lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from etcli.checkpoint.aqlm import AQLM_PARTS, aqlm_shapes
from etcli.checkpoint.aqlm_config import CODEBOOKS, INSTEAD, KEPT
from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.grouping import by_pattern, in_layers
from etcli.checkpoint.layout import linear_shapes
from etcli.checkpoint.shards import Piece
from etcli.checkpoint.stored import CODE_TYPES, contiguous_strides
from etcli.common.errors import CheckpointError, Problem
from etcli.manifests.model import AQLM_ENTRIES, AQLM_GROUP, AqlmConfig, ModelConfig
from etcli.output.units import counted

_NEVER = ("model.embed_tokens", "lm_head")
_BITS = 8


def turned(config: ModelConfig, pieces: Mapping[str, Piece], remarks: list[str]) -> dict[str, Piece]:
    """`pieces` with every linear's codes as `[out, in / 8, codebooks]`: old checkpoints have the first two dimensions the other way round.

    The number of outputs tells, unless there are as many groups of inputs. Such codes are taken to lie as those of the other linears do, or
    where these cannot tell either, as they are saved today; `remarks` is told.
    """
    found, aqlm = dict(pieces), config.aqlm
    if aqlm is None:
        return found
    swapped, right, square = [], 0, []
    for name, shape in _quantised(config, aqlm):
        piece = found.get(f"{name}.codes")
        if piece is None or len(piece.info.shape) != 3 or len(piece.parts) != 1:
            continue
        wanted, (first, second, last) = aqlm_shapes(shape, aqlm.codebooks)["codes"], piece.info.shape
        if piece.info.shape == wanted:
            right += first != second
            square += [name] if first == second else []
        elif (second, first, last) == wanted:
            swapped.append(name)
    others = bool(swapped) and not right
    for name in [*swapped, *(square if others else [])]:
        found[f"{name}.codes"] = _transposed(found[f"{name}.codes"])
    if swapped:
        remarks.append(
            f"the codes of {counted(len(swapped), 'linear')} have their first two dimensions in the old order (inputs first) and are read so"
        )
    if square:
        groups = by_pattern(square)
        shown = ", ".join(in_layers(pattern, names) for pattern, names in groups.items())
        how = "they are taken to be" + (
            " in the old order, as the others are" if others else " outputs first, as they are saved today"
        )
        remarks.append(
            f"{shown}: as many outputs as groups of inputs, so the shape cannot tell which come first in the codes; {how}"
        )
    return found


def aqlm_findings(
    config: ModelConfig, tensors: Mapping[str, TensorInfo], path: Path
) -> tuple[list[Problem], frozenset[str]]:
    """What contradicts the configuration as to AQLM, and the canonical names of all tensors that these problems speak for.

    The same fault in many layers is one problem. What a sound linear lacks, or has in another shape, is left to `layout_problems`.
    """
    aqlm = config.aqlm
    linears = [f"model.layers.{layer}.{name}" for layer in range(config.num_layers) for name in linear_shapes(config)]
    if aqlm is None:
        # codes that no configuration speaks of are tensors without a place; the matrices that they stand for are not missing
        return [], frozenset(f"{name}.weight" for name in linears if f"{name}.codebooks" in tensors)
    ends = [name for name in _NEVER if any(name + part in tensors for part in AQLM_PARTS)]
    problems = [_end_problem(ends, path)] if ends else []
    settled = {name + part for name in ends for part in (*AQLM_PARTS, ".weight")}
    coded = {name for name in linears if any(name + part in tensors for part in AQLM_PARTS)}
    plain = {name for name in linears if f"{name}.weight" in tensors}
    kept = frozenset(aqlm.kept)
    if not coded and plain:
        problems.append(
            CheckpointError.problem(
                "the configuration says that the layers are quantised by AQLM, and these weights hold no codes",
                code="checkpoint.aqlm_kept",
                hint="Use the config.json that came with the weights: that of the unquantised model has no quantization_config.",
                file=path,
            )
        )
        wrong = plain - kept
    else:
        both, unlisted, listed = coded & plain, plain - coded - kept, (coded - plain) & kept
        problems += _kind_problems(linears, both, unlisted, listed, path)
        wrong = both | unlisted | listed
    settled |= {name + part for name in wrong for part in (*AQLM_PARTS, ".weight")}
    found, named = _codebook_problems(config, aqlm, tensors, wrong, path)
    return [*problems, *found, *_code_type_problems(config, aqlm, tensors, path)], frozenset(settled | named)


def _quantised(config: ModelConfig, aqlm: AqlmConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Canonical names and plain shapes of the linears that the configuration says are quantised."""
    kept, shapes = frozenset(aqlm.kept), linear_shapes(config)
    for layer in range(config.num_layers):
        for inner, shape in shapes.items():
            name = f"model.layers.{layer}.{inner}"
            if name not in kept:
                yield name, shape


def _transposed(piece: Piece) -> Piece:
    (part,) = piece.parts
    strides = part.strides or contiguous_strides(part.shape)
    first, second, last = range(len(part.shape))
    order = (second, first, last)
    shape = tuple(part.shape[axis] for axis in order)
    return replace(piece, parts=(replace(part, shape=shape, strides=tuple(strides[axis] for axis in order)),))


def _end_problem(names: list[str], path: Path) -> Problem:
    return CheckpointError.problem(
        f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} quantised by AQLM, which is supported in layers alone",
        code="checkpoint.aqlm_head",
        hint=INSTEAD,
        file=path,
    )


def _kind_problems(
    linears: list[str], both: set[str], unlisted: set[str], listed: set[str], path: Path
) -> Iterator[Problem]:
    for names, code, what, hint in (
        (
            both,
            "aqlm_twice",
            "has a plain weight, and AQLM's tensors in its place",
            "The weights of two saves are mixed; fetch the checkpoint again.",
        ),
        (
            unlisted,
            "aqlm_kept",
            f"has a plain weight, and {KEPT} does not name it",
            f"If it is meant to be so, add its name to {KEPT} in config.json; else fetch the checkpoint again.",
        ),
        (
            listed,
            "aqlm_kept",
            f"is quantised, though {KEPT} names it",
            f"Use the config.json that came with the weights, or remove the name from {KEPT}.",
        ),
    ):
        for pattern, group in by_pattern(name for name in linears if name in names).items():
            yield CheckpointError.problem(
                f"{in_layers(pattern, group)} {what}", code=f"checkpoint.{code}", hint=hint, file=path
            )


def _codebook_problems(
    config: ModelConfig, aqlm: AqlmConfig, tensors: Mapping[str, TensorInfo], wrong: set[str], path: Path
) -> tuple[list[Problem], set[str]]:
    """Codebooks that are not those of the configuration: one problem a shape, which speaks for the codes that look up in them too."""
    wanted = (aqlm.codebooks, AQLM_ENTRIES, 1, AQLM_GROUP)
    others: dict[tuple[int, ...], list[str]] = {}
    for name, _ in _quantised(config, aqlm):
        info = tensors.get(f"{name}.codebooks")
        if name not in wrong and info is not None and info.shape != wanted:
            others.setdefault(info.shape, []).append(name)
    problems = []
    for shape, names in others.items():
        told = f"the configuration describes {list(wanted)} (codebooks, entries, outputs and inputs of a group)"
        groups = [in_layers(pattern, group) for pattern, group in by_pattern(names).items()]
        whole = len(names) == sum(1 for _ in _quantised(config, aqlm))
        where = "of all linears" if whole else f"of {', '.join(groups)}"
        problems.append(
            CheckpointError.problem(
                f"the codebooks {where} are {list(shape)}, {told}",
                code="checkpoint.tensor_shape",
                hint=_codebook_hint(shape),
                file=path,
            )
        )
    named = [name for names in others.values() for name in names]
    return problems, {f"{name}.{part}" for name in named for part in ("codes", "codebooks")}


def _codebook_hint(shape: tuple[int, ...]) -> str:
    if len(shape) != 4:
        return "The weights are not of AQLM's form; fetch the checkpoint again."
    if shape[1:] == (AQLM_ENTRIES, 1, AQLM_GROUP) and shape[0] in CODEBOOKS:
        return f"These weights have num_codebooks: {shape[0]}; use the config.json that came with them."
    return f"Such codebooks are not supported. {INSTEAD}"


def _code_type_problems(
    config: ModelConfig, aqlm: AqlmConfig, tensors: Mapping[str, TensorInfo], path: Path
) -> Iterator[Problem]:
    kinds: dict[str, list[str]] = {}
    for name, _ in _quantised(config, aqlm):
        info = tensors.get(f"{name}.codes")
        if info is not None and info.dtype not in CODE_TYPES:
            kinds.setdefault(info.dtype, []).append(f"{name}.codes")
    for kind, names in kinds.items():
        patterns = [in_layers(pattern, group) for pattern, group in by_pattern(names).items()]
        shown = ", ".join(patterns[:2]) + (", ..." if len(patterns) > 2 else "")
        wide = (
            "Codes of 16 bits belong to 1x16 or 1x15 codebooks, whatever the configuration says. "
            if kind.endswith("16")
            else ""
        )
        yield CheckpointError.problem(
            f"the codes of {counted(len(names), 'linear')} are of the type {kind}, where codes of {_BITS} bits are {' or '.join(CODE_TYPES)}: {shown}",
            code="checkpoint.aqlm_codes",
            hint=f"{wide}{INSTEAD}",
            file=path,
        )
