"""Root-mean-square normalisation in the form that XNNPACK takes whole."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """`weight * x / sqrt(mean(x^2) + eps)` over the last dimension; x is `[..., size]`.

    The mean is a linear with one constant row, because XNNPACK's partitioner leaves `aten.mean` over the last dimension outside
    and would cut the graph at every norm. `eps` is a buffer for the same reason: a tensor plus a Python number is not taken.
    """

    mean_row: torch.Tensor
    eps: torch.Tensor

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, device="meta"), requires_grad=False)
        self.register_buffer("mean_row", torch.full((1, size), 1 / size, device="cpu"), persistent=False)
        self.register_buffer("eps", torch.full((1,), eps, device="cpu"), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as `x`."""
        mean_square = functional.linear(x * x, self.mean_row)
        return self.weight * (x * torch.rsqrt(mean_square + self.eps))


class MeanRMSNorm(nn.Module):
    """The same with the mean that `aten.mean` takes: the form in which ExecuTorch's quantiser for MediaTek's NPU looks for a whole norm."""

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as `x`."""
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps))


def use_means(module: nn.Module) -> None:
    """Replace every `RMSNorm` within `module` by a `MeanRMSNorm` of its weight."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, RMSNorm):
                setattr(parent, name, MeanRMSNorm(child.weight, float(child.eps)))
