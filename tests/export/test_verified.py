"""Exports that are not verified say so, and are not taken for verified ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_export import Exported

from etcli.common.workspace import Workspace
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ExportReport


def chunk_files(manifest: BundleManifest) -> list[tuple[str, str]]:
    return [(file.path, file.sha256) for chunk in manifest.chunks for file in chunk.files]


def test_without_verification_the_manifest_says_so(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Exported(exported.document, Workspace(tmp_path, "small"), exported.checkpoint)
    result = quick.again(verify=False)
    assert result.manifest is not None
    assert not result.manifest.verified
    assert all(chunk.max_abs_error is None and chunk.errors == {} for chunk in result.chunks)
    assert chunk_files(result.manifest) == chunk_files(exported.manifest)
    assert quick.again(verify=False).current

    whole = quick.again()
    assert not whole.current
    assert whole.manifest == exported.manifest
    report = ExportReport.read(quick.bundle / "export-report.json")
    assert [sorted(chunk.errors) for chunk in report.chunks] == [
        sorted(method.name for method in chunk.files[0].methods) for chunk in exported.manifest.chunks
    ]
    # the exporter was needed once for each graph, whoever lowered it
    assert {chunk.made for chunk in report.chunks} == {"template"}
    assert report.lowerings == ()
    assert report.stages.keys() == {"hashing", "programs"}


def test_a_verified_bundle_serves_where_no_verification_is_asked_for(copied: Exported) -> None:
    copied.again()
    assert copied.again(verify=False).current


def test_a_piece_made_anew_without_verification_is_not_taken_for_a_verified_one(copied: Exported) -> None:
    result = copied.again(force=True, verify=False)
    assert result.manifest is not None
    assert not result.manifest.verified
    whole = copied.again()
    assert whole.manifest is not None
    assert whole.manifest.verified
    assert all(chunk.errors for chunk in whole.chunks)
    assert copied.again().current


def test_a_damaged_verified_piece_is_not_replaced_by_an_unverified_one(copied: Exported) -> None:
    (piece,) = (path for path in copied.workspace.export_work.glob("pieces/*/chunk.pte") if _same(path, copied, 0))
    piece.write_bytes(b"damaged")
    (copied.bundle / "manifest.json").unlink()
    copied.again(verify=False)
    whole = copied.again()
    assert whole.manifest is not None
    assert whole.manifest.verified


def _same(path: Path, exported: Exported, index: int) -> bool:
    return path.read_bytes() == (exported.bundle / exported.manifest.chunks[index].files[0].path).read_bytes()
