"""What the simulated converter takes: operators of the edge dialect that a network for an NPU is made of, each with a kernel in ExecuTorch's
`kernels_optimized` or `kernels_quantized`, which the simulated NPU runs.

MediaTek does not publish what its converter takes. This list has the operators of Llama-family networks and the usual ones around them; it
leaves out what depends on values (`nonzero`, `masked_select`, `topk`), random numbers and writes in place.
"""

from __future__ import annotations

import torch

DTYPES = frozenset({torch.float32, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool})
"""Types of tensors in a network. Half precision is none: the simulated NPU computes in float32."""

QUANTISE = frozenset(
    {"quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_channel.default"}
)
DEQUANTISE = frozenset(
    {"quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_channel.default"}
)

_LINEAR = ("addmm.default", "bmm.default", "convolution.default", "embedding.default", "linear.default", "mm.default")
_ARITHMETIC = (
    "abs.default",
    "add.Scalar",
    "add.Tensor",
    "clamp.default",
    "clamp.Tensor",
    "cos.default",
    "div.Scalar",
    "div.Tensor",
    "erf.default",
    "exp.default",
    "floor.default",
    "log.default",
    "maximum.default",
    "minimum.default",
    "mul.Scalar",
    "mul.Tensor",
    "neg.default",
    "pow.Scalar",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "reciprocal.default",
    "rsqrt.default",
    "rsub.Scalar",
    "sin.default",
    "sqrt.default",
    "sub.Scalar",
    "sub.Tensor",
)
_ACTIVATIONS = (
    "elu.default",
    "gelu.default",
    "hardtanh.default",
    "leaky_relu.default",
    "relu.default",
    "sigmoid.default",
    "tanh.default",
    "_log_softmax.default",
    "_softmax.default",
)
_REDUCTIONS = (
    "amax.default",
    "amin.default",
    "argmax.default",
    "argmin.default",
    "avg_pool2d.default",
    "max_pool2d_with_indices.default",
    "mean.dim",
    "native_group_norm.default",
    "native_layer_norm.default",
    "sum.dim_IntList",
    "_native_batch_norm_legit_no_training.default",
)
_COMPARISONS = (
    "eq.Scalar",
    "eq.Tensor",
    "ge.Scalar",
    "ge.Tensor",
    "gt.Scalar",
    "gt.Tensor",
    "le.Scalar",
    "le.Tensor",
    "logical_and.default",
    "logical_not.default",
    "logical_or.default",
    "lt.Scalar",
    "lt.Tensor",
    "ne.Scalar",
    "ne.Tensor",
    "where.self",
)
_SHAPES = (
    "alias_copy.default",
    "cat.default",
    "clone.default",
    "constant_pad_nd.default",
    "expand_copy.default",
    "full.default",
    "full_like.default",
    "gather.default",
    "index_select.default",
    "permute_copy.default",
    "pixel_shuffle.default",
    "repeat.default",
    "select_copy.int",
    "slice_copy.Tensor",
    "split_with_sizes_copy.default",
    "squeeze_copy.dim",
    "squeeze_copy.dims",
    "stack.default",
    "transpose_copy.int",
    "unsqueeze_copy.default",
    "upsample_bilinear2d.vec",
    "upsample_nearest2d.vec",
    "view_copy.default",
)

OPERATORS = (
    frozenset(
        f"aten.{name}"
        for names in (_LINEAR, _ARITHMETIC, _ACTIVATIONS, _REDUCTIONS, _COMPARISONS, _SHAPES)
        for name in names
    )
    | QUANTISE
    | DEQUANTISE
    | {"dim_order_ops._clone_dim_order.default", "getitem"}
)
"""By the name of a node's target, as `aten.mm.default`."""
