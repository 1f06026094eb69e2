"""`run.runner: mtk` from an export with `cache: shift` to tokens, through a stand-in for upstream's program (`tests/support/mtk_standin.py`).

The stand-in is written from that program's contract and shares no code with etcli; the tokens are held against transformers.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mtk_standin
import pytest
import samples
from deploy_scene import Scene
from local_device import LocalDevice
from shift_contract import check_shifting
from small_export import export_here, load_document, small_document

from etcli.common.errors import RunError
from etcli.common.workspace import Workspace
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.run.stage import RunOptions, run

PROMPT = "What is the capital?"
STANDIN = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(mtk_standin.__file__)} "$@"\n'


@pytest.fixture(scope="module")
def checkpoint(random_llama: Callable[..., Path]) -> Path:
    """Two layers, theta of Llama 3, more rows than tokens."""
    return random_llama(tokenizer=True, rope_parameters={"rope_type": "default", "rope_theta": 5e5}, seed=11)


@pytest.fixture(scope="module", params=["package", "separate"])
def whole(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """The recipe, and the workspace with its bundle."""
    chunks = 2 if request.param == "package" else 1
    document = small_document(
        checkpoint, backend="portable", layout=request.param, chunks=chunks, shapes=["4t24c", "1t24c"]
    )
    document["run"] = {"runner": "mtk", "prompt": PROMPT, "chat": True, "max_new_tokens": 6}
    root = tmp_path_factory.mktemp("mtk")
    export_here(document, root, verify=False)
    return document, root


@pytest.fixture
def scene(whole: tuple[dict[str, Any], Path], tmp_path: Path) -> Scene:
    document, root = whole
    loaded = load_document(document)
    workspace = Workspace(root, "small")
    bundle = BundleManifest.read(workspace.bundle / "manifest.json")
    needed = {
        name for chunk in bundle.chunks for file in chunk.files for method in file.methods for name in method.operators
    }
    samples.make_build(
        loaded, workspace, runner=STANDIN, runner_name="mtk_llama_executor_runner", operators=tuple(sorted(needed))
    )
    return Scene(loaded, workspace, LocalDevice(tmp_path / "device"), Console(verbosity=-1))


def call(scene: Scene, **options: object) -> RunRecord:
    scene.deploy()
    return run(scene.loaded, scene.workspace, scene.device, replace(RunOptions(stream=True), **options), scene.console)  # type: ignore[arg-type]


def greedy(checkpoint: Path, prompt: tuple[int, ...], count: int) -> list[int]:
    import tokenizers
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(checkpoint).eval()
    known = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json")).get_vocab_size()
    with torch.no_grad():
        output = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=count,
            pad_token_id=0,
            suppress_tokens=list(
                range(known, model.config.vocab_size)
            ),  # the runner looks at the tokenizer's ids alone
        )
    ids: list[int] = output[0, len(prompt) :].tolist()
    return ids


@pytest.mark.known_failure(
    "mtk-flags-left-out", "mtk-types-left-at-default", "mtk-file-names-of-the-sample", "mtk-rates"
)
def test_tokens_are_those_of_transformers(scene: Scene, checkpoint: Path) -> None:
    record = call(scene)
    assert list(record.tokens) == greedy(checkpoint, record.prompt_ids, 6)
    assert record.runner == "mtk"
    assert record.stop_reason == "max_new_tokens"
    assert record.peak_memory_bytes is None
    assert record.load_s is not None
    assert record.prefill_tokens_per_s is not None
    assert record.decode_tokens_per_s is not None
    (folder,) = [path for path in scene.workspace.runs.iterdir() if (path / "record.json").exists()][-1:]
    assert "Done analyzing prompt" in (folder / "stderr.txt").read_text()
    assert not list(scene.folder.glob(".etcli-prompt*"))
    assert {warning.code for warning in scene.console.warnings} >= {"mtk.double_bos"}


def test_programs_shift_their_caches(scene: Scene) -> None:
    bundle = BundleManifest.read(scene.workspace.bundle / "manifest.json")
    chunk = bundle.chunks[0]
    for file in chunk.files:
        for method in file.methods:
            check_shifting(scene.workspace.bundle / file.path, method.name, chunk.layers)


def test_the_answer_ends_where_the_cache_is_full(scene: Scene, checkpoint: Path) -> None:
    record = call(scene, max_new_tokens=100, chat=False)
    assert record.stop_reason == "cache_full"
    assert len(record.prompt_ids) + len(record.tokens) - 1 == 24
    assert list(record.tokens) == greedy(checkpoint, record.prompt_ids, len(record.tokens))


def test_flags_that_do_not_fit_are_seen_by_the_stand_in(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from etcli.run.runners import mtk_runner

    true_flags = mtk_runner.flags
    for name, value, status in (
        ("cache_size", 23, 3),
        ("mask_type", "int4", 136),
        ("token_embedding_path", "none", 134),
        ("nonsense", 1, 1),
    ):
        monkeypatch.setattr(mtk_runner, "flags", lambda *args, n=name, v=value: true_flags(*args) | {n: v})
        with pytest.raises(RunError, match=rf"exit status {status}"):
            call(scene)
