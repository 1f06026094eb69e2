"""A bundle of a model whose tokenizer is no `tokenizer.json`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_export import Exported, export_here
from tokenizer_kinds import TEXTS, spm_folder, spm_model

from etcli.common.errors import StaleError
from etcli.common.hashing import file_sha256
from etcli.manifests.bundle import BundleManifest
from etcli.run.prompt import open_bundle_tokenizer
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer


@pytest.fixture
def source(exported: Exported, tmp_path: Path) -> Path:
    """The small model with a SentencePiece tokenizer in the place of its own: equal tensors, so nothing is lowered again."""
    folder = Path(shutil.copytree(exported.checkpoint, tmp_path / "model"))
    for path in (*folder.glob("tokenizer*"), *folder.glob("chat_template*"), *folder.glob("special_tokens*")):
        path.unlink()
    spm_folder(folder, model=spm_model(vocab_size=320))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9]}))
    return folder


def test_a_sentencepiece_model_in_a_bundle(copied: Exported, source: Path) -> None:
    document = {**copied.document, "model": {"source": str(source)}}
    result = export_here(document, copied.workspace.root)
    assert all(chunk.reused for chunk in result.chunks)
    manifest = BundleManifest.read(copied.bundle / "manifest.json")
    files = manifest.tokenizer
    assert (files.kind, files.bos_id, files.path) == ("sentencepiece", 1, "tokenizer/tokenizer.model")
    assert files.sha256 == file_sha256(source / "tokenizer.model")
    assert files.settings is not None
    assert files.chat_template is not None
    roles = {file.path: file.role for file in result.files}
    assert roles[files.settings.path] == "tokenizer settings"
    for entry in files.files():
        assert file_sha256(copied.bundle / entry.path) == entry.sha256
    on_disk = {f"tokenizer/{path.name}" for path in (copied.bundle / "tokenizer").iterdir()}
    assert on_disk == {entry.path for entry in files.files()} <= set(roles)

    stops = manifest.model.stop_ids
    assert {2, 9} <= set(stops)
    report = json.loads((copied.bundle / "export-report.json").read_text())
    assert set(report["stop_ids"]) == set(map(str, stops))
    assert "generation_config.json" in report["stop_ids"]["9"]

    there, here = open_tokenizer(source), open_bundle_tokenizer(manifest, copied.bundle)
    for text in TEXTS:
        assert here.encode(text, bos=True) == there.encode(text, bos=True)
    assert encode_prompt(here, "hi", chat=True, system=None) == encode_prompt(there, "hi", chat=True, system=None)

    (copied.bundle / files.settings.path).unlink()
    with pytest.raises(StaleError) as caught:
        open_bundle_tokenizer(manifest, copied.bundle)
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("bundle.damaged", copied.bundle / files.settings.path)
