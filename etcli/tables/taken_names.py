"""Names that an operator library of the user's own cannot have, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_NAMESPACES = {
    "etcli": "etcli's own operators",
    "aqlm": "etcli's AQLM operators",
    "aten": "PyTorch's operators",
    "prim": "PyTorch's operators",
    "prims": "PyTorch's operators",
    "executorch_prim": "ExecuTorch's operators",
    "dim_order_ops": "ExecuTorch's operators",
    "et_copy": "ExecuTorch's operators",
    "quantized_decomposed": "PyTorch's quantised operators",
    "torchao": "torchao's operators",
}

_OUR_PREFIX = "etcli_"

# A library `libNAME.so` of theirs is in the same process or program, and whatever asks for it would get the user's.
_LIBRARIES = {
    r"executorch(_\w+)?": "ExecuTorch",
    r"(torch|c10)(_\w+)?": "PyTorch",
    r"c|m|dl|rt|pthread|atomic|gcc|gcc_s|z|log|android": "the system",
    r"gomp|omp|iomp5": "OpenMP",
}


class Taken(NamedTuple):
    """A name that is taken: the words of its place in `op.yaml`, the problem's code, message and hint."""

    words: tuple[str | int, ...]
    code: str
    message: str
    hint: str


def taken_names(name: str, namespace: str, schemas: Sequence[str]) -> list[Taken]:
    """What of a library's name, its namespace and its operators' schemas is somebody else's, or its own a second time."""
    found = []
    if name.startswith(_OUR_PREFIX):
        message = f"the name {name} is of etcli's own: those start with {_OUR_PREFIX}"
        found.append(Taken(("name",), "operators.name", message, "Give the library another name."))
    for pattern, whose in _LIBRARIES.items():
        if re.fullmatch(pattern, name):
            message = f"the name {name} is that of a library of {whose}"
            found.append(Taken(("name",), "operators.name", message, "Give the library another name."))
    if whose_space := _NAMESPACES.get(namespace):
        message = f"the namespace {namespace} is that of {whose_space}"
        hint = "Give your operators a namespace of their own."
        found.append(Taken(("namespace",), "operators.namespace", message, hint))
    operators = [f"{namespace}::{schema.partition('(')[0]}" for schema in schemas]
    for index, operator in enumerate(operators):
        if operator in operators[:index]:
            message = f"{operator} stands in the list of operators twice"
            found.append(Taken(("operators", index), "operators.twice", message, "Remove one of them."))
    return found
