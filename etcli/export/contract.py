"""The tensors of a chunk's method as runners expect them, and the check that a `.pte` has exactly these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etcli.common.errors import ExportError
from etcli.export.job import ChunkWork, NamedShape
from etcli.manifests.bundle import CacheKind, Method, TensorSpec
from etcli.pte.facts import ProgramFacts, ValueFacts


@dataclass(frozen=True)
class _Kind:
    """A cache contract: the name of the second input, its type and shape for T tokens and C slots, and whether logits are of one row."""

    place: str
    dtype: str
    shape: Callable[[int, int], tuple[int, ...]]
    last_row: bool


_KINDS: dict[CacheKind, _Kind] = {
    "shift": _Kind("mask", "float32", lambda tokens, cache: (1, 1, tokens, cache + tokens), last_row=False),
    "ring": _Kind("pos", "int64", lambda _tokens, _cache: (2,), last_row=True),
}


def method_entry(facts: ProgramFacts, work: ChunkWork, named: NamedShape) -> Method:
    """The manifest's entry of a method, read from the `.pte`, its tensors checked.

    Order and shapes are those of the runner's contract: hidden, mask or position, rotary, all keys, all values in; hidden or logits, then
    the caches as they came in, out; nothing in the program's own memory plan, every tensor contiguous and static.

    Raises:
        ExportError: `export.contract`, naming the tensor that is not as it must be.
    """
    method = facts.method(named.name)
    if method is None:
        raise _broken(named, "it is missing from the program")
    kind = _KINDS[work.cache]
    tokens, cache = named.shape.tokens, named.shape.cache
    caches = [f"{part}_{work.first_layer + layer}" for part in ("key", "value") for layer in range(work.layers)]
    inputs = _specs(["hidden", kind.place, "rotary", *caches], method.inputs, named)
    outputs = _specs(["logits" if work.head else "hidden", *caches], method.outputs, named)
    wanted = (
        (inputs[0].dtype, (1, tokens, inputs[0].shape[-1])),
        (kind.dtype, kind.shape(tokens, cache)),
        (inputs[2].dtype, (1, 2, tokens, inputs[2].shape[-1])),
    )
    for spec, (dtype, shape) in zip(inputs[:3], wanted, strict=True):
        if (spec.dtype, spec.shape) != (dtype, shape):
            raise _broken(named, f"input {spec.name} is {spec.dtype} {list(spec.shape)}, not {dtype} {list(shape)}")
    rows = 1 if work.head and kind.last_row else tokens
    if outputs[0].shape[:2] != (1, rows):
        raise _broken(named, f"output {outputs[0].name} is {list(outputs[0].shape)}, which is not {rows} rows")
    for before, after in zip(inputs[3:], outputs[1:], strict=True):
        if before != after or before.shape[2] != cache:
            raise _broken(named, f"{before.name} goes in as {list(before.shape)} and out as {list(after.shape)}")
    return Method(
        name=named.name,
        shape=named.shape,
        inputs=inputs,
        outputs=outputs,
        operators=method.operator_names,
        backends=method.backends,
    )


def _specs(names: Sequence[str], values: Sequence[ValueFacts], named: NamedShape) -> tuple[TensorSpec, ...]:
    if len(names) != len(values):
        raise _broken(named, f"it has {len(values)} tensors where {len(names)} are expected")
    for name, value in zip(names, values, strict=True):
        if value.kind != "Tensor" or not value.contiguous or value.dynamism != "static":
            raise _broken(named, f"{name} is not a contiguous tensor of static shape")
        if value.planned:
            raise _broken(named, f"{name} has a place in the program's memory plan, so runners cannot bind it")
    return tuple(
        TensorSpec(name=name, dtype=value.dtype, shape=value.shape) for name, value in zip(names, values, strict=True)
    )


def _broken(named: NamedShape, what: str) -> ExportError:
    return ExportError(
        f"method {named.name} breaks the runner's contract: {what}",
        code="export.contract",
        hint="This is a fault of etcli or of the ExecuTorch version; please report it with the recipe.",
    )
