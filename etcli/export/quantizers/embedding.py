"""Rows of the token embedding as the bundle's file holds them, and what they stand for.

float32 and float16 rows are numbers. An int8 or int4 row is a record: `columns / group_size` float32 scales, then the codes, a signed byte
each, or two in a byte with the even column in the low half, stored plus 8. A value is its code times the scale of its group.
"""

from __future__ import annotations

import torch

from etcli.common.errors import ExportError
from etcli.export.job import EmbeddingSettings

_FLOATS = {"float32": torch.float32, "float16": torch.float16}


def encoded(rows: torch.Tensor, settings: EmbeddingSettings) -> torch.Tensor:
    """Float32 rows `[n, columns]` as stored: `[n, columns]` of the float type, or `[n, row_bytes]` uint8.

    Raises:
        ExportError: `export.not_half`, a value is beyond float16's range.
    """
    if settings.dtype in _FLOATS:
        return _float_rows(rows, _FLOATS[settings.dtype])
    codes, scales = _grouped(rows, settings)
    if settings.dtype == "int4":
        shifted = (codes + 8).to(torch.uint8)
        codes = shifted[:, 0::2] | (shifted[:, 1::2] << 4)
    return torch.cat([scales.contiguous().view(torch.uint8), codes.view(torch.uint8)], dim=1)


def rounded(rows: torch.Tensor, settings: EmbeddingSettings) -> torch.Tensor:
    """Float32 rows `[n, columns]` as a runner sees them after they were stored. Raises as `encoded`."""
    if settings.dtype in _FLOATS:
        return _float_rows(rows, _FLOATS[settings.dtype]).to(torch.float32)
    codes, scales = _grouped(rows, settings)
    grouped = codes.view(*scales.shape, -1).to(torch.float32)
    return (grouped * scales.unsqueeze(-1)).view(rows.shape)


def _float_rows(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    found = rows.to(dtype)
    if not torch.isfinite(found).all():
        raise ExportError(
            f"an embedding value of {rows.abs().max().item():.3g} is beyond {dtype}".replace("torch.", ""),
            code="export.not_half",
            hint="Use embedding fp32 or int8 for this network.",
        )
    return found


def _grouped(rows: torch.Tensor, settings: EmbeddingSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes `[n, columns]` int8 and scales `[n, groups]` float32.

    Each row goes through the search for scales alone as far as the result is concerned: it takes all its steps, whichever rows are beside
    it. So a row has the same bytes wherever a table is cut.
    """
    if settings.group_size is None:
        raise ValueError(f"{settings.dtype} needs a group size")
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quant_primitives import _choose_qparams_and_quantize_scale_only_hqq

    block = (1, settings.group_size)
    if settings.dtype == "int4":
        # what int4_groups.py asks of torchao's configuration, which has no word for the number of steps
        codes, scales = _choose_qparams_and_quantize_scale_only_hqq(rows, block, -8, 7, early_stop_tol=0.0)
        return codes.to(torch.int8), scales
    found = IntxUnpackedToInt8Tensor.from_hp(rows, block, torch.int8)
    return found.qdata, found.scale
