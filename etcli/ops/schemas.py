"""Schemas of operators as text: the form that ExecuTorch's kernels have, which write into given memory, and the form that models call; and what
PyTorch has registered."""

from __future__ import annotations

import re

_ALIAS = re.compile(r"\([a-z]+!\)")
_OUT = re.compile(r", \w+\([a-z]+!\)[^ ,]* \w+(?=,|$)")


def functional_schema(schema: str) -> str:
    """`twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)` as `twice(Tensor x) -> Tensor`; a schema without `.out` as it is."""
    head, _, rest = schema.partition("(")
    name, dot, overload = head.partition(".")
    if not dot or not (overload == "out" or overload.endswith("_out")):
        return schema
    arguments, _, result = rest.rpartition(") -> ")
    before, star, after = f", {arguments}".rpartition(", *,")
    kept = _OUT.sub("", f",{after}") if star else ""
    inputs = f"{before}{', *' + kept if kept else ''}" if star else f", {arguments}"
    functional = name if overload == "out" else f"{name}.{overload.removesuffix('_out')}"
    return f"{functional}({inputs.removeprefix(', ')}) -> {_ALIAS.sub('', result)}"


def registered_schema(name: str, overload: str) -> str | None:
    """The schema that PyTorch has for an operator, as `aqlm::code2x8_lut_matmat` and "out"; None where it has none."""
    import torch

    try:
        return str(torch._C._get_schema(name, overload))
    except RuntimeError:
        return None
