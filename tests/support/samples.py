"""Small but valid recipes, bundles and builds, made without exporting or compiling anything."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import tokenizers.models
import tokenizers.pre_tokenizers

from etcli.common.workspace import Workspace
from etcli.manifests.base import FileEntry
from etcli.manifests.build import BuildManifest, ElfFacts, StagedFile
from etcli.manifests.bundle import (
    BundleManifest,
    Chunk,
    ChunkFile,
    Embedding,
    Method,
    RopeTable,
    Shape,
    TokenizerFiles,
    Versions,
)
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.recipe.fingerprint import build_fingerprint, export_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe

VOCABULARY = ["<unk>", "<s>", "</s>", "Hello", "world", "Tokyo", "is", "nice", ".", "capital"]
STOP_ID = 2
CACHE = 16


def entry(folder: Path, path: str, content: bytes) -> FileEntry:
    """Write a file and describe it."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return FileEntry(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def make_recipe(folder: Path, *, name: str = "tiny", **sections: Mapping[str, Any]) -> LoadedRecipe:
    """A recipe of `name`; `sections` are its mappings (`run`, `deploy`, ...)."""
    document = {"name": name, "model": {"source": "model.gguf"}, **sections}
    recipe = Recipe.model_validate(document)
    return LoadedRecipe(recipe=recipe, path=folder / "tiny.yaml", base=folder, document=document)


def make_bundle(
    loaded: LoadedRecipe, workspace: Workspace, *, weights: bytes = b"weights" * 1000, chunks: int = 2
) -> BundleManifest:
    """A bundle of chunks whose programs are just bytes, with a real word tokenizer."""
    folder = workspace.bundle
    shapes = (Shape(tokens=4, cache=CACHE), Shape(tokens=1, cache=CACHE))

    def chunk(index: int) -> Chunk:
        methods = tuple(
            Method(
                name=f"{loaded.recipe.name}_{shape}_{index}",
                shape=shape,
                inputs=(),
                outputs=(),
                operators=("aten::add.out",),
                backends=("XnnpackBackend",),
            )
            for shape in shapes
        )
        file = entry(folder, f"chunks/{loaded.recipe.name}_{index}.pte", bytes([index]) + weights)
        return Chunk(index=index, first_layer=index, layers=1, files=(ChunkFile(**file.model_dump(), methods=methods),))

    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: index for index, word in enumerate(VOCABULARY)}, unk_token="<unk>")  # noqa: S106
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    manifest = BundleManifest(
        name=loaded.recipe.name,
        recipe_sha256=export_fingerprint(loaded.recipe),
        inputs_sha256="0" * 64,
        versions=Versions(etcli="0", executorch="1.5.1", torch="2.13.0", program="ET12"),
        model=ModelConfig(
            architecture="llama",
            hidden_size=8,
            intermediate_size=16,
            num_layers=chunks,
            num_heads=2,
            num_kv_heads=1,
            head_dim=4,
            vocab_size=len(VOCABULARY),
            context_length=64,
            rms_norm_eps=1e-5,
            rope=RopeConfig(theta=10000.0),
            tied_embeddings=True,
            stop_ids=(STOP_ID,),
        ),
        backend="xnnpack",
        precision="fp32",
        layout="package",
        shapes=shapes,
        cache="shift",
        chunks=tuple(map(chunk, range(chunks))),
        embedding=Embedding(
            **entry(folder, "embedding_float32.bin", b"e" * 320).model_dump(), dtype="float32", rows=10, cols=8
        ),
        rope=RopeTable(**entry(folder, "rope_float32.bin", b"r" * 512).model_dump(), positions=16),
        tokenizer=TokenizerFiles(
            **entry(folder, "tokenizer/tokenizer.json", tokenizer.to_str().encode()).model_dump(), kind="hf"
        ),
        runner_config=entry(folder, "runner.cfg", b"schema_version=1\n"),
        verified=True,
    )
    manifest.write(folder / "manifest.json")
    return manifest


def make_build(
    loaded: LoadedRecipe,
    workspace: Workspace,
    *,
    runner: str = "#!/bin/sh\nexit 0\n",
    runner_name: str = "etcli_llama_runner",
    target: str = "host",
    **changes: object,
) -> BuildManifest:
    """A build whose runner is a shell script."""
    stage = workspace.build(target) / "stage"
    elf = ElfFacts(
        machine="EM_X86_64",
        interpreter="/lib64/ld-linux-x86-64.so.2",
        soname=None,
        needed=(),
        run_path=None,
        load_alignment=4096,
    )
    staged = (
        StagedFile(
            **entry(stage, runner_name, runner.encode()).model_dump(),
            executable=True,
            reason="the Llama runner",
            elf=elf,
        ),
        StagedFile(
            **entry(stage, "libhelper.so", b"library").model_dump(), executable=False, reason="needed by the runner"
        ),
    )
    manifest = BuildManifest(
        name=loaded.recipe.name,
        recipe_sha256=build_fingerprint(loaded.recipe, target),
        etcli="0",
        target=target,
        machine="EM_X86_64",
        build_type="Release",
        executorch_version="1.5.1",
        executorch_provider="wheel",
        compiler="g++",
        cmake="3.28",
        sources_sha256="0" * 64,
        operators=("aten::add.out", "aten::mul.out"),
        backends=("XnnpackBackend",),
        program="ET12",
        stage=staged,
    )
    manifest = manifest.model_copy(update=changes)
    manifest.write(workspace.build(target) / "manifest.json")
    return manifest


def event(kind: str, **fields: object) -> str:
    """An event line of the runner's protocol."""
    return json.dumps({"event": kind, **fields})


def answer_lines(
    tokens: list[int], *, prompt_tokens: int = 2, stop_reason: str = "stop_id", **stats: object
) -> list[str]:
    """A whole, well-formed run."""
    lines = [
        event("start", protocol=1, runner="etcli_llama_runner", version="0", executorch="1.5.1"),
        event("loaded", load_s=0.25, chunks=2, threads=2, memory_bytes=1000),
        event("prefill", tokens=prompt_tokens, calls=1, seconds=0.5),
    ]
    lines += [event("token", index=index, id=token, t_s=0.5 + index * 0.1) for index, token in enumerate(tokens)]
    final = {
        "stop_reason": stop_reason,
        "prompt_tokens": prompt_tokens,
        "new_tokens": len(tokens),
        "load_s": 0.25,
        "prefill_s": 0.5,
        "decode_s": 0.3,
        "decode_steps": max(len(tokens) - 1, 0),
        "prefill_tokens_per_s": 4.0,
        "decode_tokens_per_s": 10.0,
        "time_to_first_token_s": 0.5,
        "peak_memory_bytes": 4096,
        "chunk_seconds": [0.1, 0.2],
        **stats,
    }
    return [*lines, event("stats", **final)]


def script(lines: list[str], *, after: str = "exit 0") -> str:
    """A shell program that prints `lines`, then does `after`."""
    return "#!/bin/sh\n" + "".join(f"printf '%s\\n' {shlex.quote(line)}\n" for line in lines) + after + "\n"
