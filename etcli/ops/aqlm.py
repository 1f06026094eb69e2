"""Products with AQLM weights: linears whose weights are sums of codebook vectors, picked by one byte a codebook and eight inputs.

Importing this module registers `aqlm::code2x8_lut_matmat` (two codebooks) and `aqlm::code1x8_lut_matmat` (one) with PyTorch: schemas, fake
kernels for `torch.export`, and eager kernels in plain PyTorch for any device. `use_compiled` puts the compiled kernels of `native/aqlm`, the
very code that runs on a phone, in their place on the CPU. For every operator

    y[t, o] = scales[o] * sum over g and m of dot(x[t, 8g : 8g + 8], codebooks[m, codes[g, o, m] & 0xFF, 0]) + bias[o]

    input      float32 [..., in]         in is a multiple of 8
    codes      int8    [in / 8, out, M]  signed-wrapped bytes; AQLM checkpoints hold them as [out, in / 8, M]
    codebooks  float32 [M, 256, 1, 8]
    scales     float32 [out, 1, 1, 1]
    bias       float32 [out], or None
    output     float32 [..., out]

The `aqlm` package (1.1.7) uses the same namespace for its CUDA kernels, whose names are others, so both can be imported in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from etcli.common.assets import asset_dir
from etcli.common.errors import ToolError
from etcli.manifests.model import AQLM_ENTRIES, AQLM_GROUP
from etcli.ops.loading import is_in_torch, load_into_torch
from etcli.ops.schemas import registered_schema
from etcli.ops.torch_library import torch_library, torch_operators
from etcli.output.console import Console
from etcli.tables.operators import AQLM, read_operators

NAMESPACE = "aqlm"
_WITHOUT = "Or go on without it."
_COST = "which takes 20 times as long or more for one token, 2 to 30 times for a prompt"
_compiled: bool | None = None
"""Whether the compiled kernels do the work; None before anyone asked for them."""
_INPUTS = "Tensor input, Tensor codes, Tensor codebooks, Tensor scales, Tensor? bias=None"
_BLOCK = 1 << 21
"""Weights that are dequantised at a time: 8 MiB, and as much again a codebook while they are summed."""


Kernel = Callable[..., torch.Tensor]


def operator(codebooks: int) -> str:
    """Name of the operator for 1 or 2 codebooks, as `code2x8_lut_matmat`, without namespace."""
    return f"code{codebooks}x8_lut_matmat"


def lut_matmat(codebooks: int) -> Kernel:
    """The operator for 1 or 2 codebooks, to be called with `(input, codes, codebooks, scales, bias=None)`."""
    packet: Kernel = getattr(torch.ops.aqlm, operator(codebooks))
    return packet


def use_compiled(console: Console | None = None) -> bool:
    """Have the compiled kernels do the work on the CPU, in this process from now on; compiled now if the cache lacks them.

    Where they cannot be had the eager kernels stay, which give the same numbers; a note on the console says why, and what that costs.
    The first call in a process decides, the others answer what it found.
    """
    global _compiled
    if _compiled is None:
        try:
            library = read_operators(asset_dir("native") / AQLM)
            operators = torch_operators(library)
            if not is_in_torch(operators):
                load_into_torch(torch_library(library, console, way_out=_WITHOUT), operators)
            _compiled = True
        except ToolError as error:
            _compiled = False
            if console is not None:
                why = " ".join(f"{problem.message}. {problem.hint or ''}".strip() for problem in error.problems)
                console.note(f"AQLM weights are unpacked by PyTorch in every call, {_COST}: {why}")
    return _compiled


def dense_weight(codes: torch.Tensor, codebooks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The weights that codes stand for, as a `torch.nn.Linear` has them: float32 `[out, in]`.

    Args:
        codes: int8 (or the same bytes as uint8) `[in / 8, out, M]`, any strides; of a checkpoint's tensor, `codes.transpose(0, 1)`.
        codebooks: `[M, 256, 1, 8]`, any floating-point type.
        scales: `[out, 1, 1, 1]`, any floating-point type.

    Raises:
        ValueError: shapes that do not belong together.
    """
    groups, outputs, _ = _weight_sizes(codes, codebooks, scales)
    weight = torch.empty(outputs, groups * AQLM_GROUP, dtype=torch.float32, device=codes.device)
    for start, end in _blocks(groups, outputs):
        weight[start:end] = _dequantised(codes[:, start:end], codebooks, scales[start:end])
    return weight


def eager_matmat(
    x: torch.Tensor,
    codes: torch.Tensor,
    codebooks: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """What both operators compute, by the eager kernel, whichever is registered: some weights are unpacked at a time, then multiplied.

    Raises:
        ValueError: shapes or types that do not belong together, or weights that are not contiguous.
    """
    shape = _output_shape(codes.shape[-1] if codes.dim() else 0, x, codes, codebooks, scales, bias)
    return _multiplied(shape, x, codes, codebooks, scales, bias)


def _multiplied(
    shape: list[int],
    x: torch.Tensor,
    codes: torch.Tensor,
    codebooks: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The product, of the shape that `_output_shape` has found."""
    _check_contiguous(codes=codes, codebooks=codebooks, scales=scales, bias=bias)
    tokens = math.prod(shape[:-1])
    rows = x.reshape(tokens, x.shape[-1])
    y = x.new_empty(tokens, shape[-1])
    for start, end in _blocks(codes.shape[0], shape[-1]) if tokens else ():
        block = _dequantised(codes[:, start:end], codebooks, scales[start:end])
        y[:, start:end] = F.linear(rows, block, None if bias is None else bias[start:end])
    return y.view(shape)


def _blocks(groups: int, outputs: int) -> list[tuple[int, int]]:
    step = max(1, _BLOCK // max(1, groups * AQLM_GROUP))
    return [(start, min(start + step, outputs)) for start in range(0, outputs, step)]


def _dequantised(codes: torch.Tensor, codebooks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    groups, outputs, count = codes.shape
    index = codes.transpose(0, 1).to(torch.int32) & 0xFF
    vectors = codebooks.reshape(count, AQLM_ENTRIES, AQLM_GROUP).to(torch.float32)
    picked = vectors[0].index_select(0, index[..., 0].reshape(-1))
    for m in range(1, count):
        picked += vectors[m].index_select(0, index[..., m].reshape(-1))
    return picked.view(outputs, groups * AQLM_GROUP).mul_(scales.reshape(outputs, 1).to(torch.float32))


def _weight_sizes(codes: torch.Tensor, codebooks: torch.Tensor, scales: torch.Tensor) -> tuple[int, int, int]:
    """Groups of inputs, outputs and codebooks."""
    if codes.dim() != 3:
        raise ValueError(f"codes has shape {list(codes.shape)}, not [in / {AQLM_GROUP}, out, codebooks]")
    groups, outputs, count = codes.shape
    if count not in (1, 2):
        raise ValueError(
            f"codes has shape {list(codes.shape)}, and its last size has to be 1 or 2, the number of codebooks"
        )
    _expect("codebooks", codebooks, [count, AQLM_ENTRIES, 1, AQLM_GROUP])
    _expect("scales", scales, [outputs, 1, 1, 1])
    return groups, outputs, count


def _expect(name: str, tensor: torch.Tensor, shape: list[int]) -> None:
    if list(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {list(tensor.shape)}, not {shape}")


def _output_shape(
    count: int,
    x: torch.Tensor,
    codes: torch.Tensor,
    codebooks: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None,
) -> list[int]:
    """Shape of the output, after every check that needs no memory to look at."""
    groups, outputs, found = _weight_sizes(codes, codebooks, scales)
    if found != count:
        raise ValueError(f"codes is for {found} codebooks; {operator(count)} takes {count}")
    if x.dim() < 1 or x.shape[-1] != groups * AQLM_GROUP:
        raise ValueError(f"input has shape {list(x.shape)}, not [..., {groups * AQLM_GROUP}]")
    if bias is not None:
        _expect("bias", bias, [outputs])
    wanted = {"input": x, "codebooks": codebooks, "scales": scales, "bias": bias}
    for name, tensor in wanted.items():
        if tensor is not None and tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype}, not torch.float32")
    if codes.dtype != torch.int8:
        raise ValueError(f"codes is {codes.dtype}, not torch.int8")
    return [*x.shape[:-1], outputs]


def _check_contiguous(**tensors: torch.Tensor | None) -> None:
    # What the compiled kernels refuse too: a weight that is a view would be copied in every call.
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")


def _kernels(count: int) -> tuple[Kernel, Kernel, Kernel]:
    """What is registered for the operator of `count` codebooks: eager kernel, its `.out` variant, and the fake kernel."""

    def eager(
        x: torch.Tensor,
        codes: torch.Tensor,
        codebooks: torch.Tensor,
        scales: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        shape = _output_shape(count, x, codes, codebooks, scales, bias)
        return _multiplied(shape, x, codes, codebooks, scales, bias)

    def eager_out(
        x: torch.Tensor,
        codes: torch.Tensor,
        codebooks: torch.Tensor,
        scales: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        out: torch.Tensor,
    ) -> torch.Tensor:
        result = eager(x, codes, codebooks, scales, bias)
        _expect("out", out, list(result.shape))
        if out.dtype != torch.float32:
            raise ValueError(f"out is {out.dtype}, not torch.float32")
        _check_contiguous(out=out)
        return out.copy_(result)

    def fake(
        x: torch.Tensor,
        codes: torch.Tensor,
        codebooks: torch.Tensor,
        scales: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return x.new_empty(_output_shape(count, x, codes, codebooks, scales, bias))

    return eager, eager_out, fake


_library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call] # PyTorch leaves it so


def _register(count: int) -> None:
    """Register one operator, as far as another library, such as the compiled binding, has not done so before.

    Raises:
        ToolError: `operators.schema`: there is an operator of that name that takes or gives something else.
    """
    name = operator(count)
    eager, eager_out, fake = _kernels(count)
    for overload, schema, kernel in (
        ("", f"{name}({_INPUTS}) -> Tensor", eager),
        ("out", f"{name}.out({_INPUTS}, *, Tensor(a!) out) -> Tensor(a!)", eager_out),
    ):
        wanted = str(torch._C.parse_schema(f"{NAMESPACE}::{schema}"))
        found = registered_schema(f"{NAMESPACE}::{name}", overload)
        if found is None:
            _library.define(schema)
        elif found != wanted:
            raise ToolError(
                f"another package has registered {found} with PyTorch, and etcli needs {wanted}",
                code="operators.schema",
                hint="Do not import that package in the process that runs etcli.",
            )
        full = f"{name}.{overload}" if overload else name
        if not _has_kernel(full, "CompositeExplicitAutograd"):
            _library.impl(full, kernel, "CompositeExplicitAutograd")
    if not _has_kernel(name, "Meta"):
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::{name}", key))


_register(1)
_register(2)
