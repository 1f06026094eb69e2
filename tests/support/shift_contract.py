"""Bundles with `cache: shift` against the contract of ExecuTorch's MediaTek runner, written down here once more from its source (cff6f4dd32).

`check_shift_bundle` reads files alone, and imports no torch. `check_shifting` runs programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from etcli.manifests.bundle import BundleManifest
from etcli.pte.facts import MethodFacts, ProgramFacts
from etcli.pte.read import read_program
from etcli.tokenizer.opening import open_tokenizer

BYTES = {"float32": 4, "float16": 2, "int16": 2, "int8": 1, "int32": 4}
SHAPE = re.compile("([0-9]+)t([0-9]+)c")


def check_shift_bundle(folder: Path) -> None:
    """A bundle as the export stage makes it: everything the runner assumes of it and does not check. A bundle of another cache is let go."""
    bundle = BundleManifest.read(folder / "manifest.json")
    if bundle.cache != "shift":
        return
    model = bundle.model
    (cache,) = {shape.cache for shape in bundle.shapes}
    sizes = sorted(shape.tokens for shape in bundle.shapes)
    assert sizes[0] == 1, "there is no generation shape"
    assert len(set(sizes)) == len(sizes) > 1
    assert all(2 <= tokens <= cache for tokens in sizes[1:]), f"T outside 2..{cache}: {sizes}"

    layers = [chunk.layers for chunk in bundle.chunks]
    assert len(set(layers)) == 1, f"chunks of unequal layers: {layers}"
    assert sum(layers) == model.num_layers
    assert [chunk.first_layer for chunk in bundle.chunks] == [index * layers[0] for index in range(len(layers))]

    # Rows of int8 and int4 come in groups with scales, and are for our runner alone.
    width = BYTES[bundle.embedding.dtype] if bundle.embedding.group_size is None else None
    if width is not None:
        assert (folder / bundle.embedding.path).stat().st_size == model.vocab_size * model.hidden_size * width
    assert bundle.embedding.rows == model.vocab_size
    assert open_tokenizer((folder / bundle.tokenizer.path).parent).vocab_size <= model.vocab_size

    for tokens in sizes:
        before: tuple[str, tuple[int, ...]] | None = None
        for chunk in bundle.chunks:
            programs = [read_program(folder / file.path) for file in chunk.files]
            assert len(programs) == (1 if bundle.layout == "package" else len(sizes))
            method = method_of(programs, tokens, cache)
            caches = [(1, model.num_kv_heads, cache, model.head_dim)] * (2 * chunk.layers)
            check_method(method, tokens, cache, caches)
            rotary = method.inputs[2]
            assert rotary.shape == (1, 2, tokens, model.head_dim)
            hidden = (method.inputs[0].dtype, method.inputs[0].shape)
            # Chunk k+1 reads the very buffer that chunk k writes.
            assert hidden == (before or (hidden[0], (1, tokens, model.hidden_size)))
            if before is None and bundle.embedding.dtype == "float32":  # others are widened by our runner alone
                assert hidden[0] == bundle.embedding.dtype, "embedding rows are copied into the first input as they are"
            before = (method.outputs[0].dtype, method.outputs[0].shape)
        assert before is not None
        assert before[1] == (1, tokens, model.vocab_size), "logits of every row"


def method_of(programs: Sequence[ProgramFacts], tokens: int, cache: int) -> MethodFacts:
    """The method that the runner picks for `tokens`: the shape stands exactly once in its name, and in no other of that size."""
    found = []
    for method in (method for program in programs for method in program.methods):
        shapes = SHAPE.findall(method.name)
        assert len(shapes) == 1, f"the runner aborts at method {method.name}"
        if int(shapes[0][0]) == tokens:
            assert int(shapes[0][1]) == cache
            found.append(method)
    assert len(found) == 1, f"{len(found)} methods for {tokens} tokens"
    return found[0]


def check_method(method: MethodFacts, tokens: int, cache: int, caches: Sequence[tuple[int, ...]]) -> None:
    """Inputs hidden, mask, rotary, then all caches; outputs hidden or logits, then the same caches; none of them planned."""
    assert len(method.inputs) == 3 + len(caches)
    assert len(method.outputs) == 1 + len(caches)
    for value in (*method.inputs, *method.outputs):
        assert value.kind == "Tensor"
        assert not value.planned, f"{method.name} plans memory for its own inputs or outputs"
        assert value.contiguous
        assert value.dynamism == "static"
    assert method.inputs[0].shape[:2] == (1, tokens)
    assert method.inputs[1].shape == (1, 1, tokens, cache + tokens)
    assert method.inputs[2].shape[:3] == (1, 2, tokens)
    assert method.outputs[0].shape[:2] == (1, tokens)
    assert [value.shape for value in method.inputs[3:]] == list(caches)
    # One buffer serves as input and output of a cache.
    assert [(value.dtype, value.shape) for value in method.outputs[1:]] == [
        (value.dtype, value.shape) for value in method.inputs[3:]
    ]
    assert {value.dtype for value in (method.inputs[1], method.inputs[2])} <= {"float32", "float16", "int16"}


def check_shifting(path: Path, method: str, layers: int) -> None:
    """Runs one method: caches come out as the last C rows of the old ones and the new, keys before values.

    Which is which shows in the first layer, whose keys turn with the rotary tensor and whose values do not.
    """
    import torch

    from etcli.export.runtime import run_method

    facts = read_program(path).method(method)
    assert facts is not None
    generator = torch.Generator().manual_seed(5)
    inputs = [torch.randn(value.shape, generator=generator) for value in facts.inputs]
    inputs[1] = torch.zeros_like(inputs[1])
    outputs = run_method(path, method, inputs)
    tokens = facts.inputs[0].shape[1]
    for old, new in zip(inputs[3:], outputs[1:], strict=True):
        assert torch.equal(new[:, :, :-tokens], old[:, :, tokens:])
        assert not torch.equal(new[:, :, -tokens:], old[:, :, -tokens:])
    turned = run_method(path, method, [*inputs[:2], inputs[2].flip(1), *inputs[3:]])
    assert not torch.equal(turned[1], outputs[1]), "the first cache is not the first layer's keys"
    assert torch.equal(turned[1 + layers], outputs[1 + layers]), "values do not come after all keys"
