"""What an export worker holds: its chunk, however large the model around it is.

Random models in a Hugging Face folder are exported through the real stage, chunk 0 alone, at equal chunk size and without templates of earlier
exports. Three figures come of it: the base, which is a worker with next to no weights (PyTorch and ExecuTorch); what the peak grows by for
each byte of the chunk's weights; and the growth from 8 to 32 layers of model. The peak is that of the larger worker: the one that lowers or the
one that verifies. A fourth figure is the largest worker of the default model's export beside ExecuTorch's own `export_llm`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
from executorch_peer import run_export_llm
from harness import Row, arguments, publish
from safetensors.torch import save_file

from etcli.checkpoint.layout import EMBEDDING, NORM, layer_shapes
from etcli.common.workspace import Workspace, cache_dir
from etcli.export.stage import ExportOptions, export
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.loader import load
from etcli.recipe.schema import Recipe

GROWTH_BAR = 1 / 1.10
"""32 layers may need at most a tenth more than 8."""

WEIGHTS_BAR = 1 / 3
"""A worker may need its base and three times its chunk's weights."""

PEER_BAR = 1 / 0.42
"""The largest worker of the default model's export may hold 0.42 of what `export_llm` does."""

VOCABULARY = 512


@dataclass(frozen=True)
class Size:
    """A network's width, and the layers of one chunk."""

    hidden: int
    inner: int
    heads: int
    layers_per_chunk: int


TINY = Size(64, 64, 4, 1)
QUICK = Size(768, 2048, 12, 4)
FULL = Size(1536, 4096, 24, 4)


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    size = QUICK if flags.quick else FULL
    with tempfile.TemporaryDirectory(prefix="etcli-export-memory-") as folder:
        root = Path(folder)
        base, small, large = (measured(root, *case) for case in ((TINY, 1), (size, 8), (size, 32)))
        whole = default_model(root)
    what = f"{size.layers_per_chunk} layers of hidden {size.hidden} a chunk"
    grown = small.peak_memory_bytes - base.peak_memory_bytes
    rows = [
        Row("base: a worker without weights", base.peak_memory_bytes, None, "B", None, None, None, "fixed"),
        Row(
            f"peak above the base, {what}",
            grown,
            small.weights_bytes,
            "B",
            small.weights_bytes / grown,
            WEIGHTS_BAR,
            small.weights_bytes / grown >= WEIGHTS_BAR,
            "peer: the chunk's weights in float32",
        ),
        Row(
            f"peak at 32 layers, {what}",
            large.peak_memory_bytes,
            small.peak_memory_bytes,
            "B",
            small.peak_memory_bytes / large.peak_memory_bytes,
            GROWTH_BAR,
            small.peak_memory_bytes / large.peak_memory_bytes >= GROWTH_BAR,
            "peer: the peak at 8 layers",
        ),
    ]
    peer = run_export_llm("fp32").peak_bytes
    rows.append(
        Row(
            "largest worker, default model, fp32, 5 chunks",
            whole,
            peer,
            "B",
            peer / whole,
            PEER_BAR,
            peer / whole >= PEER_BAR,
            "peer: export_llm",
        )
    )
    return publish("export_memory", rows, as_json=flags.json)


@dataclass(frozen=True)
class Held:
    """The most that a worker of a chunk held, and the chunk's weights in float32, in bytes."""

    peak_memory_bytes: int
    weights_bytes: int


@contextlib.contextmanager
def without_templates(root: Path) -> Iterator[None]:
    """Within the block, the cache folder is one below `root` with all of the user's own but templates."""
    before, own, folder = os.environ.get("ETCLI_CACHE_DIR"), cache_dir(), root / "cache"
    folder.mkdir()
    for entry in own.iterdir() if own.is_dir() else ():
        if entry.name != "templates":
            (folder / entry.name).symlink_to(entry)
    os.environ["ETCLI_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["ETCLI_CACHE_DIR"]
        if before is not None:
            os.environ["ETCLI_CACHE_DIR"] = before


def default_model(root: Path) -> int:
    """The most that any worker of the default model's export holds, in bytes."""
    with tempfile.TemporaryDirectory(dir=root) as folder, without_templates(Path(folder)):
        workspace, console = Workspace(Path(folder), "smollm2-135m"), Console(json=True, verbosity=-1)
        result = export(load("smollm2-135m"), workspace, ExportOptions(jobs=1), console)
    peaks = [report.peak_memory_bytes for report in result.chunks]
    return max(peaks + [report.peak_memory_bytes for report in result.lowerings])


def measured(root: Path, size: Size, layers: int) -> Held:
    """Export chunk 0 of a random model of `layers` layers."""
    with tempfile.TemporaryDirectory(dir=root) as folder, without_templates(Path(folder)):
        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(checkpoint, size, layers)
        recipe = Recipe.model_validate(
            {
                "name": "random",
                "model": {"source": str(checkpoint)},
                "export": {"chunks": layers // size.layers_per_chunk, "shapes": ["32t512c", "1t512c"]},
            }
        )
        loaded = LoadedRecipe(recipe=recipe, path=Path("random.yaml"), base=Path(folder), document={})
        options = ExportOptions(jobs=1, only_chunks=(0,))
        result = export(loaded, Workspace(Path(folder), "random"), options, Console(json=True, verbosity=-1))
        peaks = [report.peak_memory_bytes for report in result.chunks]
        peaks += [report.peak_memory_bytes for report in result.lowerings]
        return Held(max(peaks), result.chunks[0].weights_bytes)


def write_checkpoint(folder: Path, size: Size, layers: int) -> None:
    """A random Llama in bfloat16, a shard a layer, so that writing it needs no more memory than one."""
    folder.mkdir()
    config = ModelConfig(
        architecture="llama",
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_layers=layers,
        num_heads=size.heads,
        num_kv_heads=size.heads // 4,
        head_dim=size.hidden // size.heads,
        vocab_size=VOCABULARY,
        context_length=2048,
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=1e4),
        tied_embeddings=True,
    )
    torch.manual_seed(0)
    places = {}
    for number, shapes in enumerate(_shards(config)):
        name = f"model-{number:05}.safetensors"
        save_file({key: (torch.randn(shape) * 0.02).bfloat16() for key, shape in shapes.items()}, folder / name)
        places.update(dict.fromkeys(shapes, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_act": "silu",
                "hidden_size": config.hidden_size,
                "intermediate_size": config.intermediate_size,
                "num_hidden_layers": layers,
                "num_attention_heads": config.num_heads,
                "num_key_value_heads": config.num_kv_heads,
                "head_dim": config.head_dim,
                "vocab_size": VOCABULARY,
                "max_position_embeddings": config.context_length,
                "rms_norm_eps": config.rms_norm_eps,
                "rope_theta": config.rope.theta,
                "tie_word_embeddings": True,
                "eos_token_id": 1,
            }
        )
    )
    words = {f"w{index}": index for index in range(VOCABULARY)}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))  # noqa: S106 - no password


def _shards(config: ModelConfig) -> Iterator[dict[str, tuple[int, ...]]]:
    for layer in range(config.num_layers):
        yield {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes(config, layer).items()}
    yield {EMBEDDING: (config.vocab_size, config.hidden_size), NORM: (config.hidden_size,)}


if __name__ == "__main__":
    sys.exit(main())
