"""Embedding rows as the bundle stores them, decoded here from the bytes as the manifest describes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_export import load_document, small_document

from etcli.common.errors import ExportError
from etcli.export.job import EmbeddingSettings
from etcli.export.quantizers.embedding import encoded, rounded
from etcli.export.settings import embedding_settings

ROWS, COLUMNS = 21, 192


def table(seed: int = 0) -> torch.Tensor:
    made = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed)) * 0.05
    made[2] = 0
    made[3, 7] = 3.0
    return made


def decoded(data: bytes, settings: EmbeddingSettings) -> np.ndarray:
    """Float64 rows from the file's bytes: a loop over numbers, so that it shares nothing with what wrote them."""
    if settings.group_size is None:
        kind = {"float32": "<f4", "float16": "<f2"}[settings.dtype]
        return np.frombuffer(data, kind).astype(np.float64).reshape(-1, COLUMNS)
    groups = COLUMNS // settings.group_size
    size = groups * 4 + (COLUMNS if settings.dtype == "int8" else COLUMNS // 2)
    found = np.zeros((len(data) // size, COLUMNS))
    assert len(data) % size == 0
    for row in range(len(found)):
        record = data[row * size : (row + 1) * size]
        scales = np.frombuffer(record[: groups * 4], "<f4")
        codes = record[groups * 4 :]
        for column in range(COLUMNS):
            if settings.dtype == "int8":
                code = codes[column] - 256 if codes[column] > 127 else codes[column]
            else:
                code = (codes[column // 2] >> (4 * (column % 2)) & 15) - 8
            found[row, column] = code * float(scales[column // settings.group_size])
    return found


def stored(settings: EmbeddingSettings, rows: torch.Tensor) -> bytes:
    return encoded(rows, settings).contiguous().view(torch.uint8).numpy().tobytes()


CASES = [
    (EmbeddingSettings(), 0.0),
    (EmbeddingSettings(dtype="float16"), 3e-4),
    (EmbeddingSettings(dtype="int8", group_size=32), 0.01),
    (EmbeddingSettings(dtype="int8", group_size=192), 0.02),
    (EmbeddingSettings(dtype="int4", group_size=32), 0.12),
    (EmbeddingSettings(dtype="int4", group_size=64), 0.15),
]


@pytest.mark.parametrize(("settings", "error"), CASES)
def test_rows_come_back(settings: EmbeddingSettings, error: float) -> None:
    rows = table()
    found = decoded(stored(settings, rows), settings)
    assert found.shape == (ROWS, COLUMNS)
    difference = np.linalg.norm(found - rows.double().numpy(), axis=1)
    length = np.linalg.norm(rows.double().numpy(), axis=1)
    usual = np.arange(ROWS) != 3  # with its outlier, a row of small numbers has a large scale
    assert (difference[usual] <= error * length[usual]).all()
    assert found[2].tolist() == [0.0] * COLUMNS


@pytest.mark.parametrize(("settings", "_"), CASES)
def test_the_reference_sees_what_the_file_holds(settings: EmbeddingSettings, _: float) -> None:
    rows = table(seed=1)
    seen = rounded(rows, settings)
    assert seen.dtype == torch.float32
    assert np.array_equal(seen.numpy(), decoded(stored(settings, rows), settings).astype(np.float32))


@pytest.mark.parametrize(("settings", "_"), CASES)
def test_a_row_is_stored_alike_wherever_the_table_is_cut(settings: EmbeddingSettings, _: float) -> None:
    rows = table(seed=2)
    assert stored(settings, rows) == b"".join(stored(settings, rows[n : n + 4]) for n in range(0, ROWS, 4))


def test_a_value_beyond_float16_is_refused() -> None:
    rows = table()
    rows[1, 1] = -1e5
    with pytest.raises(ExportError, match=r"1e\+05 is beyond float16"):
        encoded(rows, EmbeddingSettings(dtype="float16"))


@pytest.mark.parametrize(
    ("export", "settings"),
    [
        ({}, EmbeddingSettings()),
        ({"precision": "8da4w"}, EmbeddingSettings()),
        ({"embedding": "int4"}, EmbeddingSettings(dtype="int4", group_size=32)),
        ({"precision": "8da4w", "group_size": 64, "embedding": "int8"}, EmbeddingSettings(dtype="int8", group_size=64)),
        ({"precision": "8da4w", "embedding": "fp16"}, EmbeddingSettings(dtype="float16")),
    ],
)
def test_settings_of_a_recipe(tmp_path, export, settings) -> None:
    assert embedding_settings(load_document(small_document(tmp_path, **export)).recipe) == settings
