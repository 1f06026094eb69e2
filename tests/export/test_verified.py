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
