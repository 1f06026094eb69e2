"""What a deployment makes from the bundle for the MediaTek runner: llama2.c's binary of a SentencePiece model, and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import samples
from deploy_scene import Scene
from tokenizer_kinds import bpe_folder, meta_folder, spm_folder, spm_model

from etcli.common.errors import CheckpointError
from etcli.deploy.wanted import Sources, wanted_files
from etcli.device.builds import LocalBuild
from etcli.export.assembly import Assembly
from etcli.manifests.bundle import BundleManifest
from etcli.output.console import Console
from etcli.recipe.outdated import MANIFEST
from etcli.tokenizer.llama2c import llama2c_bytes
from etcli.tokenizer.opening import open_tokenizer
from etcli.tokenizer.pieces import SentencePieceTokenizer
from etcli.verbs.clean import clean_workspace

BINARY = "bundle/tokenizer/tokenizer.bin"


def sources(scene: Scene, model: Path | None, runner: str) -> Sources:
    """The scene's bundle with the tokenizer of `model` in it, to be deployed for `runner`."""
    folder = scene.workspace.bundle
    bundle = BundleManifest.read(folder / MANIFEST)
    if model is not None:
        shutil.rmtree(folder / "tokenizer")
        assembly = Assembly(scene.workspace)
        files = assembly.tokenizer(open_tokenizer(model))
        (assembly.folder / "tokenizer").rename(folder / "tokenizer")
        assembly.discard()
        bundle = bundle.model_copy(update={"tokenizer": files})
        bundle.write(folder / MANIFEST)
    return Sources(
        bundle_folder=folder,
        bundle=bundle,
        bundle_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
        build=LocalBuild(
            folder=scene.workspace.build("host"),
            manifest=samples.make_build(scene.loaded, scene.workspace),
            sha256="0" * 64,
        ),
        runner=runner,
        made=scene.workspace.deploy_work,
        export_command="etcli export",
        build_command="etcli build",
    )


def test_the_mtk_runner_gets_the_binary(scene: Scene, tmp_path: Path) -> None:
    found = {file.path: file for file in wanted_files(sources(scene, spm_folder(tmp_path / "model"), "mtk"))}
    made = found[BINARY]
    tokenizer = open_tokenizer(scene.workspace.bundle / "tokenizer")
    assert isinstance(tokenizer, SentencePieceTokenizer)
    data = llama2c_bytes(tokenizer)
    assert made.local.read_bytes() == data
    assert (made.size, made.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert not made.executable
    assert list(found) == sorted(found)
    before = made.local.stat().st_mtime_ns
    wanted_files(sources(scene, None, "mtk"))
    assert made.local.stat().st_mtime_ns == before
    clean_workspace(scene.workspace, Console(verbosity=-1))
    assert not made.local.exists()


def test_ranks_go_as_they_are(scene: Scene, tmp_path: Path) -> None:
    paths = [file.path for file in wanted_files(sources(scene, meta_folder(tmp_path / "model"), "mtk"))]
    assert BINARY not in paths
    assert "bundle/tokenizer/tokenizer.model" in paths
    assert not scene.workspace.deploy_work.exists()


def test_a_bpe_tokenizer_gets_its_end_token_told(scene: Scene, tmp_path: Path) -> None:
    wanted = sources(scene, bpe_folder(tmp_path / "model"), "mtk")
    bundle = wanted.bundle.model_copy(update={"model": wanted.bundle.model.model_copy(update={"stop_ids": (0, 2)})})
    found = {file.path: file for file in wanted_files(replace(wanted, bundle=bundle))}
    assert "bundle/tokenizer/tokenizer.json" in found
    made = found["bundle/tokenizer/tokenizer_config.json"]
    assert json.loads(made.local.read_bytes()) == {"eos_token": "<|im_end|>"}


def test_a_model_that_is_no_bpe_is_refused(scene: Scene) -> None:
    with pytest.raises(CheckpointError, match="it is a WordLevel model") as caught:
        wanted_files(sources(scene, None, "mtk"))
    assert caught.value.problems[0].code == "tokenizer.upstream"


def test_our_own_runner_needs_none(scene: Scene, tmp_path: Path) -> None:
    paths = [file.path for file in wanted_files(sources(scene, spm_folder(tmp_path / "model"), "etcli"))]
    assert BINARY not in paths
    assert {"bundle/tokenizer/tokenizer.model", "bundle/tokenizer/tokenizer_settings.json"} < set(paths)
    assert not scene.workspace.deploy_work.exists()


def test_a_model_that_cannot_be_written_is_refused_before_anything_is_sent(scene: Scene, tmp_path: Path) -> None:
    model = spm_folder(tmp_path / "model", model=spm_model(model_type="unigram"), added_tokens_decoder=None)
    with pytest.raises(CheckpointError, match="no BPE model"):
        wanted_files(sources(scene, model, "mtk"))
    assert not scene.workspace.deploy_work.exists()
