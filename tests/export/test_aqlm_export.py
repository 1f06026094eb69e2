"""AQLM folders exported: the programs of the bundle compute what transformers computes in float64 with the dense weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from aqlm_folders import read_weights, write_aqlm_folder, write_weights
from aqlm_oracle import dense_logits
from small_export import Exported, export_here, load_document, small_document

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ToolError
from etcli.common.workspace import Workspace
from etcli.export.estimates import GRAPH_FILE_BYTES, lowering_bytes, making_bytes
from etcli.export.inputs import graph_key, program_key
from etcli.export.pieces import Pieces
from etcli.export.plan import make_plan
from etcli.export.result import ExportResult
from etcli.export.runtime import run_method
from etcli.manifests.bundle import BundleManifest
from etcli.ops import library
from etcli.ops.needed import load_needed

KEPT = ("model.layers.1.mlp.down_proj", "model.layers.1.self_attn.k_proj")


@pytest.fixture(scope="module")
def tokenizer(random_llama: Any) -> Path:
    folder: Path = random_llama(tokenizer=True)
    return folder


def logits_of(bundle: Path, manifest: BundleManifest, ids: list[int], calls: list[tuple[int, int]]) -> torch.Tensor:
    """Logits after each call `(tokens of the method, tokens that count)`, with nothing but the bundle to go by."""
    model = manifest.model
    table = np.fromfile(bundle / manifest.embedding.path, dtype="<f4").reshape(model.vocab_size, model.hidden_size)
    rope = torch.from_numpy(np.fromfile(bundle / manifest.rope.path, dtype="<f4").reshape(-1, 2, model.head_dim))
    load_needed(
        {name for chunk in manifest.chunks for file in chunk.files for m in file.methods for name in m.operators}
    )
    caches: dict[int, list[torch.Tensor]] = {}
    rows, start = [], 0
    for tokens, valid in calls:
        hidden, rotary = torch.zeros(1, tokens, model.hidden_size), torch.zeros(1, 2, tokens, model.head_dim)
        hidden[0, :valid] = torch.from_numpy(table)[ids[start : start + valid]]
        rotary[0, :, :valid] = rope[start : start + valid].transpose(0, 1)
        for chunk in manifest.chunks:
            path, method = next((f.path, m) for f in chunk.files for m in f.methods if m.shape.tokens == tokens)
            empty = [torch.zeros(spec.shape) for spec in method.inputs[3:]]
            place = torch.tensor([start, valid])
            found = run_method(bundle / path, method.name, [hidden, place, rotary, *caches.get(chunk.index, empty)])
            hidden, caches[chunk.index] = found[0], found[1:]
        rows.append(hidden[0, 0])
        start += valid
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("backend", "layout", "shapes", "options"),
    [
        ("xnnpack", "separate", ["4t32c", "1t32c"], {"kept": KEPT}),
        (
            "portable",
            "package",
            ["8t32c", "4t32c", "1t32c"],
            {"family": "qwen2", "container": "bin", "codebooks": 1, "tie_word_embeddings": True},
        ),
    ],
)
def test_a_bundle_computes_what_the_dense_network_does(
    tmp_path: Path, tokenizer: Path, backend: str, layout: str, shapes: list[str], options: dict[str, Any]
) -> None:
    dense = write_aqlm_folder(tmp_path / "m", tokenizer=tokenizer, **options)
    values = {"backend": backend, "layout": layout, "shapes": shapes, "cache": "ring"}
    document = small_document(tmp_path / "m", precision="aqlm", head="fp32", **values)
    result = export_here(document, tmp_path / "work", jobs=2)
    manifest = result.manifest
    assert manifest is not None
    ids = [5, 77, 300, 2, 2, 19, 150, 33, 250, 7, 8, 9]
    calls = [(8, 8), (4, 3), (1, 1)] if len(shapes) == 3 else [(4, 4), (4, 4), (4, 3), (1, 1)]
    right = dense_logits(tmp_path / "m", dense, ids)[[7, 10, 11]]
    found = logits_of(result.folder, manifest, ids, calls)[-3:]
    torch.testing.assert_close(found.double(), right, atol=1e-4, rtol=0)
    assert len(result.chunks) == (4 if layout == "separate" else 2)
    assert all(chunk.note is None for chunk in result.chunks)
    assert all(chunk.float_errors == {} for chunk in result.chunks), "nothing was quantised here"
    operator = f"aqlm::code{options.get('codebooks', 2)}x8_lut_matmat.out"
    for chunk in manifest.chunks:
        for file in chunk.files:
            assert all(operator in method.operators for method in file.methods)
    if backend == "xnnpack":
        taken = [{count for c in result.chunks if c.index == k for count in c.delegate_calls.values()} for k in (0, 1)]
        assert taken == [{4}, {3}], "layer 1 keeps its down_proj"


class Small:
    """An export with the default head, in two chunks."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.document = small_document(folder, precision="aqlm", cache="ring")
        self.result: ExportResult = export_here(self.document, root, jobs=1)
        self.exported = Exported(self.document, Workspace(root, "small"), folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Small:
    folder = tmp_path_factory.mktemp("aqlm")
    write_aqlm_folder(folder / "m", tokenizer=tokenizer)
    return Small(folder / "m", folder / "work")


def test_the_head_alone_is_quantised_and_what_that_costs_is_told_of_it_alone(small: Small) -> None:
    manifest = small.result.manifest
    assert manifest is not None
    assert (manifest.precision, manifest.head, manifest.group_size) == ("aqlm", "8da8w", None)
    body, tail = sorted(small.result.chunks, key=lambda chunk: chunk.index)
    assert body.float_errors == {}
    assert all(0 < error < 0.05 for error in tail.float_errors.values())
    assert len(tail.float_errors) == 2
    assert max(body.errors.values()) < 1e-4


def test_what_it_took_is_no_more_than_was_estimated(small: Small) -> None:
    model = small.exported.manifest.model
    plan = make_plan(load_document(small.document), model)
    for chunk in plan.chunks:
        (program,) = chunk.programs
        (made,) = (entry for entry in small.result.chunks if entry.index == chunk.index)
        size = (small.result.folder / program.file).stat().st_size
        assert chunk.stored_bytes < size < chunk.stored_bytes + 8 * GRAPH_FILE_BYTES * chunk.layers * 2
        assert made.weights_bytes == chunk.weights_bytes
        assert made.peak_memory_bytes <= making_bytes(plan, chunk, program, model)
        for lowering in small.result.lowerings:
            assert lowering.peak_memory_bytes <= lowering_bytes(plan, chunk, program, model)


def test_the_same_again_is_current_and_other_codes_are_another_program(small: Small, tmp_path: Path) -> None:
    assert small.exported.again().current
    folder = tmp_path / "changed"
    write_aqlm_folder(folder, seed=0)
    tensors = read_weights(folder)
    tensors["model.layers.1.mlp.up_proj.codes"][3, 2, 1] ^= 1
    write_weights(folder, tensors)
    keys = []
    for place in (small.exported.checkpoint, folder):
        checkpoint = open_checkpoint(place)
        plan = make_plan(load_document(small.document), checkpoint.config)
        hashes = {name: checkpoint.sha256(name) for name in checkpoint.tensors}
        keys.append(
            [
                program_key(plan, chunk, chunk.programs[0], checkpoint.config, hashes, verified=True)
                for chunk in plan.chunks
            ]
        )
    assert keys[0][0] == keys[1][0]
    assert keys[0][1] != keys[1][1]


def test_chunks_of_one_graph_are_those_that_keep_the_same_linears(tmp_path: Path) -> None:
    write_aqlm_folder(tmp_path / "m", num_hidden_layers=4, kept=[f"model.layers.{n}.mlp.up_proj" for n in (0, 2)])
    config = open_checkpoint(tmp_path / "m").config

    def graphs(chunks: int) -> list[str]:
        plan = make_plan(load_document(small_document(tmp_path / "m", precision="aqlm", chunks=chunks)), config)
        return [graph_key(plan, chunk, chunk.programs[0], config) for chunk in plan.chunks]

    first, second, third, last = graphs(4)
    assert first == third
    assert len({first, second, last}) == 3
    assert len(set(graphs(2))) == 2, "the last chunk has the head"


def test_operators_that_cannot_be_compiled_are_told_before_any_work(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_aqlm_folder(tmp_path / "m", tokenizer=tokenizer)
    begun: list[object] = []
    monkeypatch.setattr(Pieces, "_run", lambda *given, **_named: begun.append(given))

    def lacking(*_given: object, **_named: object) -> Path:
        raise ToolError("no C++ compiler", code="compiler.missing", hint="Install one.")

    monkeypatch.setattr(library, "find_tools", lacking)
    document = small_document(tmp_path / "m", precision="aqlm")
    with pytest.raises(ToolError, match="no C\\+\\+ compiler"):
        export_here(document, tmp_path / "work")
    assert not begun
