"""The names that stand in pickles of tensors, by what they say. None of them is ever looked up."""

from __future__ import annotations

_DTYPES = {
    "float32": "F32",
    "float": "F32",
    "float16": "F16",
    "half": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "double": "F64",
    "int64": "I64",
    "long": "I64",
    "int32": "I32",
    "int": "I32",
    "int16": "I16",
    "short": "I16",
    "int8": "I8",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
    "complex64": "C64",
    "complex128": "C128",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
_STORAGES = {
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "DoubleStorage": "F64",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": "C128",
    "QInt8Storage": "QI8",
    "QUInt8Storage": "QU8",
    "QInt32Storage": "QI32",
    "UntypedStorage": "U8",
}
TYPES = {f"torch.{name}": kind for name, kind in (*_DTYPES.items(), *_STORAGES.items())} | {
    f"torch.storage.{name}": kind for name, kind in _STORAGES.items()
}
"""What a name says about elements."""

INERT = frozenset(
    (
        "torch.device",
        "torch.Tensor",
        "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout",
        "torch.strided",
        "_codecs.encode",
        "builtins.bytearray",
        "builtins.set",
        "builtins.complex",
        "collections.Counter",
        "collections.defaultdict",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
    )
)
"""What stands beside tensors in honest checkpoints, steps and settings of a training; allowed because it is never made."""
