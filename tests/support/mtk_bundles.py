"""Bundles that upstream's MediaTek runner takes, with programs that are just bytes: for tests of what is checked before anything runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import samples

from etcli.common.workspace import Workspace
from etcli.export.assembly import Assembly
from etcli.manifests.bundle import BundleManifest, Chunk, ChunkFile, Embedding, Method, Shape, TensorSpec
from etcli.recipe.loaded import LoadedRecipe
from etcli.tokenizer.opening import open_tokenizer

ROWS = 700


def method(
    name: str,
    shape: Shape,
    *,
    layers: int,
    first: bool,
    last: bool,
    hidden: int = 8,
    head_dim: int = 4,
    kv_heads: int = 1,
) -> Method:
    """A method with the tensors of the contract, all float32."""
    tokens, cache = shape.tokens, shape.cache

    def spec(role: str, *sizes: int) -> TensorSpec:
        return TensorSpec(name=role, dtype="float32", shape=sizes)

    caches = [
        spec(f"{part}_{layer}", 1, kv_heads, cache, head_dim) for part in ("key", "value") for layer in range(layers)
    ]
    inputs = [
        spec("hidden", 1, tokens, hidden),
        spec("mask", 1, 1, tokens, cache + tokens),
        spec("rotary", 1, 2, tokens, head_dim),
        *caches,
    ]
    out = spec("logits", 1, tokens, ROWS) if last else spec("hidden", 1, tokens, hidden)
    return Method(
        name=name,
        shape=shape,
        inputs=tuple(inputs),
        outputs=(out, *caches),
        operators=(),
        backends=("NeuropilotBackend",),
    )


def make_mtk_bundle(
    loaded: LoadedRecipe,
    workspace: Workspace,
    model: Path,
    *,
    layout: Literal["package", "separate"] = "package",
    chunks: int = 2,
    **changes: Any,
) -> BundleManifest:
    """Write a bundle with the tokenizer of the folder `model`; `changes` are fields of its manifest, `model_changes` those of its model."""
    bundle = samples.make_bundle(loaded, workspace)
    folder, name = workspace.bundle, loaded.recipe.name
    shapes = (Shape(tokens=8, cache=64), Shape(tokens=1, cache=64))

    def methods(index: int) -> list[Method]:
        return [
            method(f"{name}_{shape}_{index}", shape, layers=1, first=index == 0, last=index == chunks - 1)
            for shape in shapes
        ]

    def files(index: int) -> tuple[ChunkFile, ...]:
        groups = [methods(index)] if layout == "package" else [[one] for one in methods(index)]
        names = (
            [f"chunks/{name}_{index}.pte"]
            if layout == "package"
            else [f"chunks/{one.name}.pte" for one in methods(index)]
        )
        return tuple(
            ChunkFile(**samples.entry(folder, path, path.encode()).model_dump(), methods=tuple(group))
            for path, group in zip(names, groups, strict=True)
        )

    shutil.rmtree(folder / "tokenizer", ignore_errors=True)
    tokenizer = open_tokenizer(model)
    assembly = Assembly(workspace)
    saved = assembly.tokenizer(tokenizer)
    (assembly.folder / "tokenizer").rename(folder / "tokenizer")
    assembly.discard()
    values: dict[str, Any] = {
        "layout": layout,
        "shapes": shapes,
        "tokenizer": saved,
        "chunks": tuple(Chunk(index=index, first_layer=index, layers=1, files=files(index)) for index in range(chunks)),
        "embedding": Embedding(
            **samples.entry(folder, "embedding_float32.bin", bytes(ROWS * 8 * 4)).model_dump(),
            dtype="float32",
            rows=ROWS,
            cols=8,
        ),
        "model": bundle.model.model_copy(
            update={
                "vocab_size": ROWS,
                "num_layers": chunks,
                "stop_ids": tokenizer.stop_ids,
                **changes.pop("model_changes", {}),
            }
        ),
    }
    manifest = bundle.model_copy(update=values | changes)
    manifest.write(folder / "manifest.json")
    return manifest
