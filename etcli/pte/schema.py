"""Field numbers and enumerations of ExecuTorch's `schema/program.fbs` and `scalar_type.fbs` (release 1.5.1, file identifier `ET12`).

A table's fields are numbered in the order of the schema; a union takes two numbers, its type and its value. The schema only ever
grows at the end of a table, so these numbers hold for older and newer files of the same identifier.
"""

from __future__ import annotations

from enum import IntEnum


class Program(IntEnum):
    """The root table."""

    VERSION = 0
    EXECUTION_PLAN = 1
    BACKEND_DELEGATE_DATA = 3
    SEGMENTS = 4
    CONSTANT_SEGMENT = 5
    NAMED_DATA = 7


class Plan(IntEnum):
    """`ExecutionPlan`, a method."""

    NAME = 0
    VALUES = 2
    INPUTS = 3
    OUTPUTS = 4
    CHAINS = 5
    OPERATORS = 6
    DELEGATES = 7
    NON_CONST_BUFFER_SIZES = 8


class EValue(IntEnum):
    """`EValue`, the union of kinds."""

    KIND = 0
    VALUE = 1


class Tensor(IntEnum):
    """`Tensor`."""

    SCALAR_TYPE = 0
    SIZES = 2
    DIM_ORDER = 3
    DATA_BUFFER = 5
    ALLOCATION_INFO = 6
    SHAPE_DYNAMISM = 8


class Delegate(IntEnum):
    """`BackendDelegate`."""

    ID = 0
    PROCESSED = 1
    COMPILE_SPECS = 2


KINDS = (
    "None",
    "Null",
    "Int",
    "Bool",
    "Double",
    "Tensor",
    "String",
    "IntList",
    "DoubleList",
    "BoolList",
    "TensorList",
    "OptionalTensorList",
)
"""Names of the union `KernelTypes`; 0 is absent."""

DYNAMISM = ("static", "bounded", "unbounded")
"""Names of `TensorShapeDynamism`."""

KERNEL_CALL, DELEGATE_CALL = 1, 2
"""Members of the union `InstructionArguments`; both keep the index of what they call in field 0."""

INLINE, SEGMENT = 0, 1
"""`DataLocation` of a delegate's blob."""

SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    12: "qint8",
    13: "quint8",
    14: "qint32",
    15: "bfloat16",
    16: "quint4x2",
    17: "quint2x4",
    22: "bits16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
"""Torch's names of `ScalarType`."""

ITEM_BYTES = {
    **dict.fromkeys(("int8", "uint8", "bool", "qint8", "quint8", "quint4x2", "quint2x4"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", "bits16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "qint32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
"""Bytes of an element."""
