"""Paths of options and variables, as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcli.common.errors import UsageError
from etcli.common.paths import written_path
from etcli.common.workspace import cache_dir

STRANGER = "~nobody-of-this-name"


def test_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert written_path("a/./b/") == tmp_path / "a" / "b"
    assert written_path("~/b") == tmp_path / "home" / "b"
    assert written_path("link/x") == tmp_path / "link" / "x"
    assert written_path("link/../x") == tmp_path / "deep" / "x"  # as the system has it
    assert written_path(f"{STRANGER}/x") == tmp_path / STRANGER / "x"


def test_a_cache_folder_in_a_strangers_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETCLI_CACHE_DIR", f"{STRANGER}/cache")
    with pytest.raises(UsageError, match=f"{STRANGER} is no home folder") as caught:
        cache_dir()
    assert caught.value.problems[0].code == "cache.home"
    monkeypatch.setenv("ETCLI_CACHE_DIR", "cache")
    assert cache_dir() == tmp_path / "cache"
