"""The worker that writes embedding and rope table: a block of rows at a time, the bytes those of the whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from etcli.checkpoint.layout import EMBEDDING
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.weights import WeightsCheckpoint
from etcli.common.errors import CheckpointError
from etcli.export import tables
from etcli.export.job import EmbeddingSettings, Job, Outcome, TablesWork
from etcli.export.quantizers.embedding import encoded
from etcli.llama.rope import rope_table

Build = Callable[..., Path]
POSITIONS = 40
SETTINGS = (
    EmbeddingSettings(),
    EmbeddingSettings(dtype="float16"),
    EmbeddingSettings(dtype="int8", group_size=32),
    EmbeddingSettings(dtype="int4", group_size=32),
)


def write(checkpoint: Path, settings: EmbeddingSettings, folder: Path) -> None:
    work = TablesWork(positions=POSITIONS, embedding=settings)
    tables.write_tables(Job(parent=os.getpid(), checkpoint=str(checkpoint), threads=1, work=work), work, folder)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the blocks that are read, 7 rows at most; reading the whole is an error."""
    monkeypatch.setattr(tables, "EMBEDDING_BLOCK_BYTES", 7 * 64 * 4)
    sizes: list[int] = []
    read_rows = WeightsCheckpoint.read_rows

    def counted(self: WeightsCheckpoint, name: str, start: int, stop: int) -> torch.Tensor:
        sizes.append(stop - start)
        return read_rows(self, name, start, stop)

    monkeypatch.setattr(WeightsCheckpoint, "read_rows", counted)
    return sizes


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.dtype)
def test_blocks_make_the_file_of_the_whole(
    random_llama: Build, tmp_path: Path, blocks: list[int], settings: EmbeddingSettings
) -> None:
    folder = random_llama()
    write(folder, settings, tmp_path)
    assert blocks == [7] * (320 // 7) + [320 % 7]
    checkpoint = open_checkpoint(folder)
    whole = encoded(checkpoint.read(EMBEDDING), settings).contiguous().view(torch.uint8).numpy().tobytes()
    assert (tmp_path / f"embedding_{settings.dtype}.bin").read_bytes() == whole
    rope = rope_table(checkpoint.config.rope, checkpoint.config.head_dim, POSITIONS)
    assert (tmp_path / tables.ROPE).read_bytes() == rope.numpy().tobytes()
    outcome = Outcome.read(tmp_path / Outcome.FILE)
    assert [entry.size for entry in outcome.files] == [len(whole), rope.numel() * 4]
    assert outcome.weights_bytes == 320 * 64 * 4


def test_a_number_that_is_none_is_found_in_its_block(
    random_llama: Build, tmp_path: Path, blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_rows = WeightsCheckpoint.read_rows

    def damaged(self: WeightsCheckpoint, name: str, start: int, stop: int) -> torch.Tensor:
        found = read_rows(self, name, start, stop)
        if start <= 100 < stop:
            found[100 - start, 5] = float("inf")
        return found

    monkeypatch.setattr(WeightsCheckpoint, "read_rows", damaged)
    with pytest.raises(CheckpointError, match="1 of 448 numbers in rows 98 to 104"):
        write(random_llama(), EmbeddingSettings(), tmp_path)
    assert not list(tmp_path.glob("*.bin"))
