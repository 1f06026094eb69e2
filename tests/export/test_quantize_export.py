"""`model.quantize: aqlm` from recipe to bundle: the plan, the export, its evaluation, and when it is done again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_export import export_here, load_document

from etcli.common.errors import EtcliError, ExitCode
from etcli.common.files import remove_tree
from etcli.common.workspace import Workspace
from etcli.export import stage
from etcli.export.aqlm import making
from etcli.export.aqlm.calibration import calibration_ids
from etcli.export.result import ExportResult
from etcli.export.source import peek_checkpoint
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ExportReport
from etcli.manifests.quantised import DEMONSTRATION
from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.recipe.outdated import bundle_outdated
from etcli.verbs.validate import validate

QUIET = Console(verbosity=-1)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this module's own, and a calibration of some hundred tokens."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETCLI_CACHE_DIR", str(place))
        patch.setattr(making, "calibration_ids", lambda *args: [ids[:60] for ids in calibration_ids(*args)[:6]])
        yield place


@pytest.fixture(scope="module")
def document(random_llama: Callable[..., Path]) -> dict[str, Any]:
    return {
        "name": "small",
        "model": {"source": str(random_llama(tokenizer=True, tie_word_embeddings=True)), "quantize": "aqlm"},
        # without XNNPACK, whose head would be quantised too, the figures are those of AQLM alone
        "export": {
            "backend": "portable",
            "precision": "aqlm",
            "cache": "shift",
            "chunks": 2,
            "shapes": ["8t32c", "1t32c"],
        },
    }


class Done:
    """The bundle of `document`, exported with an evaluation; what was planned before; what was said."""

    def __init__(self, document: dict[str, Any], root: Path) -> None:
        self.document, self.root = document, root
        self.planned = self.again(dry_run=True)
        self.console = Console(verbosity=-1)
        self.result = export_here(document, root, self.console, evaluate=True, verify=False)

    def again(self, **options: Any) -> ExportResult:
        return export_here(self.document, self.root, Console(verbosity=-1), verify=False, **options)

    @property
    def manifest(self) -> BundleManifest:
        found = self.result.manifest
        assert found is not None
        return found


@pytest.fixture(scope="module")
def done(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(document, tmp_path_factory.mktemp("exported"))


def test_the_plan_says_that_it_quantises_first(done: Done) -> None:
    needs = done.planned.quantising
    assert needs is not None
    assert needs.seconds > 0
    assert needs.memory_bytes > 100 << 20
    assert done.planned.plan is not None
    assert done.planned.work is not None
    assert {program.state for program in done.planned.work.programs} <= {"lowered", "template"}
    # the sizes are those of codes
    planned = {program.file: program.bytes for program in done.planned.work.programs}
    for chunk in done.manifest.chunks:
        for file in chunk.files:
            assert 0.5 * file.size < planned[file.path] < 2 * file.size


def test_the_bundle_is_of_an_aqlm_network(done: Done) -> None:
    assert done.manifest.model.aqlm is not None
    assert done.manifest.model.aqlm.codebooks == 2
    assert "aqlm.demonstration" in {warning.code for warning in done.console.warnings}
    said = [warning.message for warning in done.console.warnings if "demonstration" in warning.message]
    assert len(said) == 1
    assert done.manifest.quality == "demonstration"


def test_a_copy_of_the_folder_is_marked_too_and_again_when_current(
    document: dict[str, Any], done: Done, tmp_path: Path
) -> None:
    made = peek_checkpoint(load_document(document), QUIET)
    assert made is not None
    shutil.copytree(made, tmp_path / "mine")
    own = {**document, "model": {"source": str(tmp_path / "mine")}}
    for current in (False, True):
        console = Console(verbosity=-1)
        result = export_here(own, tmp_path / "work", console=console, verify=False)
        assert result.current == current
        assert result.manifest is not None
        assert result.manifest.quality == "demonstration"
        assert [warning.message for warning in console.warnings] == [DEMONSTRATION]


def test_the_evaluation_compares_with_the_original_weights(done: Done) -> None:
    found = done.result.evaluation
    assert found is not None
    assert 0 < found.mean_kl < 0.5
    assert found.perplexity != found.perplexity_float
    assert len(found.chunk_errors) == 2
    assert all(0 < error < 0.5 for error in found.chunk_errors)


def test_the_source_in_the_report_is_the_users(done: Done, document: dict[str, Any]) -> None:
    report = ExportReport.read(Workspace(done.root, "small").bundle / "export-report.json")
    assert report.source_path == document["model"]["source"]
    assert "model.safetensors" in report.source_stamp
    assert report.stages["quantising"] > 0


def test_a_current_bundle_needs_no_folder_in_the_cache(done: Done, document: dict[str, Any], cache: Path) -> None:
    folder = peek_checkpoint(load_document(document), QUIET)
    assert folder is not None
    away = cache / "away"
    folder.rename(away)
    try:
        assert done.again().current
        planned = done.again(dry_run=True)
        assert planned.current
        assert planned.quantising is None
        assert not folder.exists()
    finally:
        away.rename(folder)


def test_finished_pieces_serve_when_the_bundle_is_gone(
    done: Done, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Workspace(done.root, "small").bundle
    saved = bundle.with_name("saved")
    bundle.rename(saved)
    monkeypatch.setattr(stage.Pieces, "_run", lambda *_args, **_options: pytest.fail("a piece was made again"))
    monkeypatch.setattr(making, "run_isolated", lambda *_args, **_options: pytest.fail("it was quantised again"))
    try:
        assert done.again(dry_run=True).quantising is None
        again = done.again()
        assert again.manifest == done.manifest
    finally:
        remove_tree(bundle)
        saved.rename(bundle)


def test_without_quantize_the_bundle_is_outdated(done: Done, document: dict[str, Any]) -> None:
    changed = {**document, "model": {"source": document["model"]["source"]}}
    bundle = Workspace(done.root, "small").bundle
    assert bundle_outdated(load_document(document), done.manifest, bundle) is None
    assert bundle_outdated(load_document(changed), done.manifest, bundle) is not None


def test_what_cannot_be_quantised_leaves_no_folders(
    random_llama: Callable[..., Path], document: dict[str, Any], tmp_path: Path
) -> None:
    wrong = {
        **document,
        "model": {"source": str(random_llama(tokenizer=True, intermediate_size=100)), "quantize": "aqlm"},
    }
    for dry_run in (False, True):
        with pytest.raises(EtcliError) as refused:
            export_here(wrong, tmp_path, dry_run=dry_run)
        assert refused.value.exit == ExitCode.USAGE
        assert refused.value.problems[0].code == "recipe.aqlm_group"
    assert list(tmp_path.iterdir()) == []


def test_validate_marks_it(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(document))  # YAML too
    console = Console(verbosity=-1)
    found = validate(load(str(path)), console)
    assert found.model is not None
    assert "aqlm.demonstration" in {warning.code for warning in console.warnings}


def test_only_precision_aqlm_goes_with_it(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps({**document, "export": {**document["export"], "precision": "fp32"}}))
    with pytest.raises(EtcliError) as refused:
        load(str(path))
    (problem,) = refused.value.problems
    assert problem.code == "recipe.conflict"
    assert "quantize" in problem.message + (problem.hint or "")
