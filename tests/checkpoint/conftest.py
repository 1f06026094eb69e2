"""A cache of its own for each test of this room, so that no test sees what another remembered."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, empty. The default model, fetched once for all tests, is elsewhere."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(folder))
    monkeypatch.delenv("ETCLI_OFFLINE", raising=False)
    return folder


@pytest.fixture(scope="session")
def package_reader(default_model: Path) -> gguf.GGUFReader:
    """The default model as the gguf package's own reader sees it, which takes seconds to make."""
    return gguf.GGUFReader(default_model)
