"""Whether the bundle that is there is the one that an export would write: nothing is redone then.

Nothing large is read for the answer. The source is the same when its files' sizes and times are; the bundle's files are whole when theirs
are what they were when written, and only where a time differs (a copied bundle) is a file hashed. Damage that leaves size and time alone
is found by `etcli bundle verify`, which hashes everything, as the device does.
"""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import UsageError
from etcli.common.hashing import file_sha256
from etcli.export.inputs import inputs_sha256, recipe_inputs_sha256
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ExportReport
from etcli.recipe.fingerprint import export_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST, REPORT
from etcli.recipe.sources import source_stamp


def current_bundle(
    loaded: LoadedRecipe, source: Path, folder: Path, *, verified: bool = True
) -> tuple[BundleManifest, ExportReport] | None:
    """Manifest and report of the bundle in `folder`, if an export of `loaded` from `source` would give the same; else None.

    With `verified`, a bundle that was exported without verification is not what it would give.
    """
    try:
        manifest = BundleManifest.read(folder / MANIFEST)
        report = ExportReport.read(folder / REPORT)
    except (OSError, UsageError):
        return None
    recipe_sha256 = export_fingerprint(loaded.recipe)
    same_inputs = (
        (manifest.verified or not verified or not manifest.verifiable)
        and manifest.recipe_sha256 == recipe_sha256
        and manifest.inputs_sha256 == inputs_sha256(recipe_inputs_sha256(loaded), report.tensors_sha256)
        and report.source_path == str(source)
        and report.source_stamp == source_stamp(loaded, source)
    )
    return (manifest, report) if same_inputs and _whole(manifest, report, folder) else None


def bundle_stamp(manifest: BundleManifest, folder: Path) -> dict[str, list[int]]:
    """Size and modification time in ns of each file that the manifest lists."""
    found = {}
    for entry in manifest.files():
        status = (folder / entry.path).stat()
        found[entry.path] = [status.st_size, status.st_mtime_ns]
    return found


def _whole(manifest: BundleManifest, report: ExportReport, folder: Path) -> bool:
    try:
        now = bundle_stamp(manifest, folder)
        return all(
            now[entry.path][0] == entry.size
            and (
                now[entry.path] == report.bundle_stamp.get(entry.path)
                or file_sha256(folder / entry.path) == entry.sha256
            )
            for entry in manifest.files()
        )
    except OSError:
        return False
