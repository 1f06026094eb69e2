"""`runner.cfg`: the bundle's numbers as the native runner reads them (docs/runner-protocol.md)."""

from __future__ import annotations

from etcli.manifests.bundle import BundleManifest


def runner_config(manifest: BundleManifest) -> str:
    """The configuration that fits `manifest`; its own `runner_config` entry is not looked at."""
    model, embedding, rope = manifest.model, manifest.embedding, manifest.rope
    prompts = [shape.tokens for shape in manifest.shapes if shape.tokens > 1]
    values: dict[str, object] = {
        "schema_version": 1,
        "name": manifest.name,
        "cache": manifest.cache,
        "hidden_size": model.hidden_size,
        "head_dim": model.head_dim,
        "num_kv_heads": model.num_kv_heads,
        "num_layers": model.num_layers,
        "vocab_size": model.vocab_size,
        "cache_length": manifest.shapes[0].cache,
        "prompt_tokens": ",".join(map(str, sorted(prompts, reverse=True))),
        "stop_ids": ",".join(map(str, model.stop_ids)),
        "pad_id": 0,
        "embedding.path": embedding.path,
        "embedding.dtype": embedding.dtype,
        "embedding.rows": embedding.rows,
        "embedding.cols": embedding.cols,
        **({} if embedding.group_size is None else {"embedding.group_size": embedding.group_size}),
        "rope.path": rope.path,
        "rope.positions": rope.positions,
        "chunks": len(manifest.chunks),
    }
    for chunk in manifest.chunks:
        values[f"chunk.{chunk.index}.layers"] = chunk.layers
        for file in chunk.files:
            for method in file.methods:
                key = f"chunk.{chunk.index}.method.{method.shape.tokens}"
                values[f"{key}.path"] = file.path
                values[f"{key}.name"] = method.name
    return "".join(f"{key}={value}\n" for key, value in values.items())
