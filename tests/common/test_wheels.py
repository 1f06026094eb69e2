"""Wheels come through pip as it is configured, and only wheels."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from etcli.common.errors import CheckpointError, ExitCode, ToolError
from etcli.common.wheels import download_wheel


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("ETCLI_OFFLINE", raising=False)
    return folder


def make_wheel(folder: Path, tag: str) -> Path:
    path = folder / f"etcli_probe-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "etcli_probe-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: etcli-probe\nVersion: 1.0\nRequires-Dist: no-such\n",
        )
        archive.writestr("etcli_probe-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr("etcli_probe-1.0.dist-info/RECORD", "")
    return path


def test_a_wheel_of_another_platform_without_its_dependencies(links: Path, tmp_path: Path) -> None:
    made = make_wheel(links, "cp311-cp311-manylinux_2_28_aarch64")
    found = download_wheel(
        "etcli-probe==1.0", tmp_path / "out", platform="manylinux_2_28_aarch64", python_version="3.11"
    )
    assert found == tmp_path / "out" / made.name
    assert found.read_bytes() == made.read_bytes()


def test_a_source_distribution_is_never_taken(links: Path, tmp_path: Path) -> None:
    (links / "etcli_probe-1.0.tar.gz").write_bytes(b"setup.py would run")
    with pytest.raises(ToolError) as caught:
        download_wheel("etcli-probe==1.0", tmp_path / "out")
    assert caught.value.problems[0].code == "wheel.download"
    assert "No matching distribution" in str(caught.value)


def test_the_error_is_of_the_callers_kind(links: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        download_wheel("etcli-probe==1.0", tmp_path / "out", error=CheckpointError)
    assert caught.value.exit == ExitCode.CHECKPOINT


def test_offline_is_explained(links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(links, "py3-none-any")
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    with pytest.raises(ToolError) as caught:
        download_wheel("etcli-probe==1.0", tmp_path / "out")
    assert caught.value.problems[0].code == "wheel.offline"
    assert not (tmp_path / "out").exists()
