"""Several prompt shapes, in one package or a file each: the same methods, which give transformers' logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from small_export import Exported, small_document

from etcli.common.workspace import Workspace
from etcli.export.runtime import run_method
from etcli.ops.needed import load_needed
from etcli.pte.read import read_program

SHAPES = ["8t32c", "4t32c", "1t32c"]


@pytest.fixture(scope="module", params=["separate", "package"])
def layout(
    request: pytest.FixtureRequest, small_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    """One chunk with three shapes, rings as caches."""
    root = tmp_path_factory.mktemp(request.param)
    document = small_document(small_checkpoint, layout=request.param, chunks=1, shapes=SHAPES, cache="ring")
    exported = Exported(document, Workspace(root, "small"), small_checkpoint)
    exported.again(jobs=2)
    return exported


def test_files_methods_and_configuration(layout: Exported) -> None:
    separate = layout.manifest.layout == "separate"
    (chunk,) = layout.manifest.chunks
    names = [f"small_{shape}_0" for shape in SHAPES]
    paths = [f"chunks/{name}.pte" for name in names] if separate else ["chunks/small_0.pte"]
    assert [file.path for file in chunk.files] == paths
    assert [method.name for file in chunk.files for method in file.methods] == names
    for file in chunk.files:
        facts = read_program(layout.bundle / file.path)
        assert {method.name for method in facts.methods} == {method.name for method in file.methods}
        for method in file.methods:
            assert method.operators == ("etcli::last_row.out", "etcli::ring_attention.out") or method.shape.tokens == 1
            assert method.inputs[1].name == "pos"
            assert method.outputs[0].shape == (1, 1, 320)
    values = dict(line.split("=", 1) for line in (layout.bundle / "runner.cfg").read_text().splitlines())
    assert values["prompt_tokens"] == "8,4"
    for index, tokens in enumerate((8, 4, 1)):
        assert values[f"chunk.0.method.{tokens}.name"] == names[index]
        assert values[f"chunk.0.method.{tokens}.path"] == (paths[index] if separate else paths[0])


def test_a_prompt_in_calls_of_every_shape_gives_transformers_logits(layout: Exported) -> None:
    """Eight tokens, three in a call of four, then one: nothing but the manifest to go by."""
    manifest, bundle = layout.manifest, layout.bundle
    model = transformers.LlamaForCausalLM.from_pretrained(layout.checkpoint, dtype=torch.float32).eval()
    embedding = torch.from_numpy(np.fromfile(bundle / manifest.embedding.path, dtype="<f4").reshape(320, 64))
    rope = torch.from_numpy(np.fromfile(bundle / manifest.rope.path, dtype="<f4").reshape(32, 2, 16))
    methods = {m.shape.tokens: (file.path, m.name) for file in manifest.chunks[0].files for m in file.methods}
    load_needed(("etcli::ring_attention.out",))
    ids = [5, 77, 300, 2, 2, 19, 150, 33, 250, 7, 8, 9]
    caches = [torch.zeros(1, 2, 32, 16) for _ in range(4)]
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0]
    for start, valid, tokens in ((0, 8, 8), (8, 3, 4), (11, 1, 1)):
        hidden, rotary = torch.zeros(1, tokens, 64), torch.zeros(1, 2, tokens, 16)
        hidden[0, :valid] = embedding[ids[start : start + valid]]
        rotary[0, :, :valid] = rope[start : start + valid].transpose(0, 1)
        path, name = methods[tokens]
        logits, *caches = run_method(bundle / path, name, [hidden, torch.tensor([start, valid]), rotary, *caches])
        assert torch.allclose(logits[0, 0], expected[start + valid - 1], atol=1e-4)
