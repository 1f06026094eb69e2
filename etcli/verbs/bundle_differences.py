"""Two bundles held against one another: chunks paired by their place in the model and methods by their shape, equal changes told once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from etcli.manifests.bundle import BundleManifest, Chunk, Method, TensorSpec
from etcli.output.units import counted
from etcli.verbs.program_differences import Difference, unequal

_FIRST = ("precision", "group_size", "head", "backend", "layout", "cache", "shapes", "platform", "simulated", "quality")
"""Fields that say most of what a bundle is, in the order in which they are told."""
_LISTED = 3


@dataclass(frozen=True)
class _Change:
    """A value of one chunk that is not the same in the other bundle; `shape` is the method's, `tensor` the input's or output's name."""

    chunk: int
    shape: str
    kind: str
    tensor: str
    a: str
    b: str


def bundle_differences(
    a: BundleManifest, b: BundleManifest, left: Mapping[str, str], right: Mapping[str, str]
) -> list[Difference]:
    """What differs, size and precision first and hashes last; a hash is told only where the sizes do not tell of it already.

    Args:
        left: the leaves of `a`'s manifest by their path, of which those of chunks are not looked at.
        right: those of `b`.
    """
    sizes = [f"{sum(entry.size for entry in bundle.files()):,} B" for bundle in (a, b)]
    whole = [item for item in unequal("", left, right) if not item.what.startswith("chunks[")]
    what = {item.what for item in whole}
    whole = [item for item in whole if f"{item.what.removesuffix('sha256')}size" not in what or _is_size(item)]
    hashes = [_short(item) for item in whole if item.what.endswith("sha256")]
    facts = sorted((item for item in whole if not item.what.endswith("sha256")), key=_rank)
    return [
        *([Difference("size", *sizes)] if sizes[0] != sizes[1] else ()),
        *facts,
        *_folded(list(_chunks(a, b))),
        *hashes,
    ]


def _is_size(item: Difference) -> bool:
    return not item.what.endswith("sha256")


def _short(item: Difference) -> Difference:
    return Difference(item.what, item.a[:12], item.b[:12])


def _rank(item: Difference) -> int:
    field = item.what.partition("[")[0].partition(".")[0]
    return _FIRST.index(field) if field in _FIRST else len(_FIRST)


def _chunks(a: BundleManifest, b: BundleManifest) -> Iterator[_Change]:
    first, second = ({chunk.index: chunk for chunk in bundle.chunks} for bundle in (a, b))
    for index in sorted(first.keys() | second.keys()):
        x, y = first.get(index), second.get(index)
        if x is None or y is None:
            yield _Change(index, "", "", "", *_there(x, y))
            continue
        for item in unequal("", _facts(x), _facts(y)):
            if item.what != "sha256" or _size(x) == _size(y):
                yield _Change(index, "", item.what, "", item.a, item.b)
        # exporters build a method's name out of the recipe's
        yield from _methods(index, x, y, named=a.name == b.name)


def _there(x: object, y: object) -> tuple[str, str]:
    return "-" if x is None else "there", "-" if y is None else "there"


def _size(chunk: Chunk) -> int:
    return sum(file.size for file in chunk.files)


def _facts(chunk: Chunk) -> dict[str, str]:
    return {
        "layers": f"{chunk.first_layer}-{chunk.first_layer + chunk.layers - 1}",
        "files": f"{len(chunk.files)}",
        "size": f"{_size(chunk):,} B",
        "sha256": ", ".join(file.sha256[:12] for file in chunk.files),
    }


def _methods(chunk: int, a: Chunk, b: Chunk, *, named: bool) -> Iterator[_Change]:
    first, second = ({str(method.shape): method for file in one.files for method in file.methods} for one in (a, b))
    for shape in dict.fromkeys((*first, *second)):
        x, y = first.get(shape), second.get(shape)
        if x is None or y is None:
            yield _Change(chunk, shape, "method", "", *_there(x, y))
            continue
        for item in unequal("", _method(x, named=named), _method(y, named=named)):
            yield _Change(chunk, shape, item.what, "", item.a, item.b)
        for kind, left, right in (("input", x.inputs, y.inputs), ("output", x.outputs, y.outputs)):
            for item in unequal("", _tensors(left), _tensors(right)):
                yield _Change(chunk, shape, kind, item.what, item.a, item.b)


def _method(method: Method, *, named: bool) -> dict[str, str]:
    return {
        **({"method's name": method.name} if named else {}),
        **{f"delegate {name}": "there" for name in method.backends},
        **{f"operator {name}": "there" for name in method.operators},
    }


def _tensors(specs: Sequence[TensorSpec]) -> dict[str, str]:
    return {spec.name: f"{spec.dtype} {' x '.join(map(str, spec.shape))}" for spec in specs}


def _folded(changes: Sequence[_Change]) -> Iterator[Difference]:
    """One line for each change of what and into what, wherever it is."""
    groups: dict[tuple[str, str, str], list[_Change]] = {}
    for change in changes:
        # every chunk has content of its own, which is one change all the same
        values = ("", "") if change.kind == "sha256" else (change.a, change.b)
        groups.setdefault((change.kind, *values), []).append(change)
    for group in groups.values():
        kind = group[0].kind
        tensors = list(dict.fromkeys(change.tensor for change in group if change.tensor))
        if len(tensors) > _LISTED:
            kind = f"{counted(len(tensors), kind)} ({tensors[0]} to {tensors[-1]})"
        elif tensors:
            kind = f"{kind}{'s' if len(tensors) > 1 else ''} {', '.join(tensors)}"
        shapes = ", ".join(dict.fromkeys(change.shape for change in group if change.shape))
        where = _ranges(sorted({change.chunk for change in group}))
        what = f"{where}: {kind}" if kind else where
        yield Difference(
            f"{what} ({shapes})" if shapes else what,
            _some([change.a for change in group]),
            _some([change.b for change in group]),
        )


def _some(values: Sequence[str]) -> str:
    told = list(dict.fromkeys(values))
    more = f" and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
    return f"{', '.join(told[:_LISTED])}{more}"


def _ranges(numbers: Sequence[int]) -> str:
    """`chunk 2`, `chunks 0-3, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = ", ".join(f"{start}" if start == end else f"{start}-{end}" for start, end in runs)
    return f"chunk{'s' if len(numbers) > 1 else ''} {words}"
