"""The linear layer of AQLM networks: weights that stay codes and codebooks, multiplied by a custom operator."""

from __future__ import annotations

import torch
from torch import nn

from etcli.manifests.model import AQLM_ENTRIES, AQLM_GROUP
from etcli.ops.aqlm import lut_matmat


class AqlmLinear(nn.Module):
    """`x @ W.T + bias`, where each row of W is its scale times sums of codebook vectors: see `ops.aqlm`.

    Parameters are on the meta device until weights are loaded: `codes` int8 `[inputs / 8, outputs, codebooks]`, `codebooks` float32
    `[codebooks, 256, 1, 8]`, `scales` float32 `[outputs, 1, 1, 1]`, `bias` float32 `[outputs]` or None.

    Raises:
        ValueError: `inputs` is not a multiple of 8.
    """

    def __init__(self, inputs: int, outputs: int, codebooks: int, *, bias: bool) -> None:
        super().__init__()
        if inputs % AQLM_GROUP:
            raise ValueError(f"{inputs} inputs are not whole groups of {AQLM_GROUP}")
        self.codes = _parameter(inputs // AQLM_GROUP, outputs, codebooks, dtype=torch.int8)
        self.codebooks = _parameter(codebooks, AQLM_ENTRIES, 1, AQLM_GROUP)
        self.scales = _parameter(outputs, 1, 1, 1)
        self.bias = _parameter(outputs) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., inputs]` to `[..., outputs]`, float32."""
        return lut_matmat(self.codebooks.shape[0])(x, self.codes, self.codebooks, self.scales, self.bias)


def _parameter(*shape: int, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device="meta"), requires_grad=False)
