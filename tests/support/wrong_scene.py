"""Wrong checkpoints, made out of good ones."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors.torch
import torch
from gguf_writing import write

Build = Callable[..., Path]
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


class Scene:
    """A place for one wrong checkpoint, and the models to make it of."""

    def __init__(self, root: Path, model: Build) -> None:
        self.root, self.model = root, model
        root.mkdir(parents=True)

    def folder(
        self, family: str = "llama", *, drop: tuple[str, ...] = (), extra: dict[str, Any] | None = None, **config: Any
    ) -> Path:
        """A good model's folder, without the tensors `drop`, with `extra` ones, its `config.json` changed by `config`."""
        options = config.pop("made", {})
        folder = self.root / "model"
        shutil.copytree(self.model(family, **options), folder)
        if drop or extra:
            tensors = safetensors.torch.load_file(folder / "model.safetensors")
            kept = {name: tensor.clone() for name, tensor in tensors.items() if name not in drop} | (extra or {})
            safetensors.torch.save_file(kept, folder / "model.safetensors")
        if config:
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    def shards(self) -> tuple[Path, list[Path]]:
        """A good model in shards with an index."""
        folder = self.folder()
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        names = sorted(tensors)
        files = [folder / f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]
        for number, file in enumerate(files):
            safetensors.torch.save_file({name: tensors[name].clone() for name in names[number::3]}, file)
        places = {name: files[index % 3].name for index, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        return folder, files

    def gguf(self, family: str = "llama", **options: Any) -> Path:
        """A model as a GGUF file."""
        return write(self.root / "m.gguf", self.model(family), **{"arch": family} | options)

    def content(self, name: str, content: bytes) -> Path:
        """A file of `content`."""
        path = self.root / name
        path.write_bytes(content)
        return path


def changed(path: Path, change: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(change(path.read_bytes()))
    return path


def put(folder: Path, name: str, content: str | None) -> Path:
    """`folder` with the file `name` of this content, or without it."""
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_text(content)
    return folder


def without_shard(scene: Scene) -> Path:
    folder, files = scene.shards()
    files[1].unlink()
    return folder


def misplaced(scene: Scene) -> Path:
    folder, files = scene.shards()
    index = folder / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["model.norm.weight"] = next(
        file.name for file in files if file.name != document["weight_map"]["model.norm.weight"]
    )
    index.write_text(json.dumps(document))
    return folder


def leaving(scene: Scene) -> Path:
    folder, _ = scene.shards()
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"model-00002-of', '"../model-00002-of'))
    return folder


def dangling(scene: Scene) -> Path:
    folder = put(scene.folder(), "model.safetensors", None)
    (folder / "model.safetensors").symlink_to("/nowhere/blob")
    return folder


def piped(scene: Scene) -> Path:
    folder = scene.folder()
    os.mkfifo(folder / "model-00001-of-00002.safetensors")
    return folder


def above(scene: Scene) -> Path:
    scene.folder()
    return scene.root


def eight_billion(scene: Scene) -> Path:
    """Headers and holes of 16 GB: a file whose tensors nobody could read in the time of a test."""
    folder = scene.root / "large"
    folder.mkdir()
    hidden, inner, layers, rows = 4096, 14336, 32, 128256
    shapes = {
        "model.embed_tokens.weight": (rows, hidden),
        "lm_head.weight": (rows, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(layers):
        part = f"model.layers.{layer}"
        for name in ("q", "k", "v", "o"):
            shapes[f"{part}.self_attn.{name}_proj.weight"] = (1024 if name in "kv" else hidden, hidden)
        for name in ("gate", "up"):
            shapes[f"{part}.mlp.{name}_proj.weight"] = (inner, hidden)
        shapes[f"{part}.mlp.down_proj.weight"] = (hidden, inner)
        for name in ("input", "post_attention"):
            shapes[f"{part}.{name}_layernorm.weight"] = (hidden,)
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + end)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": rows,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float16)


def zero_blocks(name: str, values: Any, kind: gguf.GGMLQuantizationType) -> Any:
    length, size = gguf.constants.GGML_QUANT_SIZES[kind]
    return np.zeros((values.shape[0], max(1, values.shape[1] // length) * size), np.uint8)
