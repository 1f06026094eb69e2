"""Bundles of a small random network for the native runner, and what transformers says that they must generate.

They are put together here from chunks alone, so that tests of the runner judge the runner and not the export stage.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
import torch
from once import once
from shift_contract import check_method, method_of
from transformers import LlamaConfig, LlamaForCausalLM

from etcli.export.backends.registry import BACKENDS
from etcli.llama.caches import empty_caches
from etcli.llama.chunk import Chunk
from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.manifests.bundle import CacheKind
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.pte.read import read_program

VOCABULARY = 160
CACHE = 24
LAYERS = (2, 1, 1)
"""Layers of each chunk: unequal on purpose, and a number of chunks that ends on either hidden buffer."""


@dataclass(frozen=True)
class BundleSpec:
    """What a tiny bundle is made of. `shapes` are the T of its prompt methods, largest first."""

    backend: str = "xnnpack"
    cache: CacheKind = "shift"
    shapes: tuple[int, ...] = (8, 3)
    layout: Literal["package", "separate"] = "package"


@dataclass(frozen=True)
class TinyBundle:
    """A bundle of a random network, and the transformers model of the same weights."""

    folder: Path
    spec: BundleSpec
    oracle: LlamaForCausalLM

    @property
    def config(self) -> Path:
        return self.folder / "runner.cfg"

    @property
    def shapes(self) -> tuple[int, ...]:
        return self.spec.shapes

    def greedy(self, prompt: Sequence[int], count: int, stop_ids: Sequence[int] = ()) -> list[int]:
        """What transformers generates, a stop id included."""
        with torch.no_grad():
            output = self.oracle.generate(
                torch.tensor([list(prompt)]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=list(stop_ids) or None,
                pad_token_id=0,
            )
        answer: list[int] = output[0, len(prompt) :].tolist()
        return answer


def random_network(seed: int) -> LlamaForCausalLM:
    """A network whose weights all matter, on both sides of grouped-query attention."""
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=sum(LAYERS),
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = name.endswith("norm.weight")
            parameter.normal_(std=0.3 if is_norm else 0.12).add_(1.0 if is_norm else 0.0)
    return model


def shared_bundle(factory: pytest.TempPathFactory, spec: BundleSpec) -> TinyBundle:
    """The bundle of `spec`, made by whichever process of the test run first asks for it: lowering its programs takes half a minute."""
    name = f"tiny-{spec.backend}-{spec.cache}-{'-'.join(map(str, spec.shapes))}-{spec.layout}"
    folder = once(factory, name, lambda folder: write_bundle(folder, spec))
    return TinyBundle(folder, spec, _oracle())


@cache
def _oracle() -> LlamaForCausalLM:
    return random_network(seed=3)


def write_bundle(folder: Path, spec: BundleSpec) -> TinyBundle:
    """Export a random network in chunks of `LAYERS` into `folder` and write the configuration, without stop ids."""
    model = _oracle()
    config, weights = _model_config(model), model.state_dict()
    table = rope_table(config.rope, config.head_dim, CACHE)
    (folder / "chunks").mkdir(parents=True, exist_ok=True)
    (folder / "rope_float32.bin").write_bytes(table.numpy().tobytes())
    (folder / "embedding.bin").write_bytes(weights["model.embed_tokens.weight"].numpy().tobytes())
    lines = [
        "schema_version=1",
        "name=tiny",
        f"cache={spec.cache}",
        f"hidden_size={config.hidden_size}",
        f"head_dim={config.head_dim}",
        f"num_kv_heads={config.num_kv_heads}",
        f"num_layers={config.num_layers}",
        f"vocab_size={config.vocab_size}",
        f"cache_length={CACHE}",
        f"prompt_tokens={','.join(map(str, spec.shapes))}",
        "stop_ids=",
        "pad_id=0",
        "embedding.path=embedding.bin",
        "embedding.dtype=float32",
        f"embedding.rows={config.vocab_size}",
        f"embedding.cols={config.hidden_size}",
        "rope.path=rope_float32.bin",
        f"rope.positions={CACHE}",
        f"chunks={len(LAYERS)}",
    ]
    for k, layers in enumerate(LAYERS):
        chunk = Chunk(config, sum(LAYERS[:k]), layers, head=k + 1 == len(LAYERS), cache=spec.cache).eval()
        _fill(chunk, weights)
        lines.append(f"chunk.{k}.layers={layers}")
        programs = {}
        for tokens in (*spec.shapes, 1):
            name = f"tiny_{tokens}t{CACHE}c_{k}"
            programs[name] = torch.export.export(chunk, _example(config, table, layers, tokens, spec.cache))
            path = f"chunks/{name if spec.layout == 'separate' else f'tiny_{k}'}.pte"
            lines += [f"chunk.{k}.method.{tokens}.path={path}", f"chunk.{k}.method.{tokens}.name={name}"]
        if spec.layout == "separate":
            for name, program in programs.items():
                _lower(folder / "chunks" / f"{name}.pte", spec.backend, {name: program})
        else:
            _lower(folder / "chunks" / f"tiny_{k}.pte", spec.backend, programs)
    (folder / "runner.cfg").write_text("\n".join(lines) + "\n")
    if spec.cache == "shift":
        _check(folder, spec, config)
    return TinyBundle(folder, spec, model)


def _check(folder: Path, spec: BundleSpec, config: ModelConfig) -> None:
    """The programs against the MediaTek runner's contract, but for the equal numbers of layers and the one prompt shape that it asks for."""
    for k, layers in enumerate(LAYERS):
        programs = [read_program(path) for path in folder.glob(f"chunks/*_{k}.pte")]
        for tokens in (*spec.shapes, 1):
            caches = [(1, config.num_kv_heads, CACHE, config.head_dim)] * (2 * layers)
            check_method(method_of(programs, tokens, CACHE), tokens, CACHE, caches)


def _model_config(model: LlamaForCausalLM) -> ModelConfig:
    hf = model.config
    return ModelConfig(
        architecture="LlamaForCausalLM",
        hidden_size=hf.hidden_size,
        intermediate_size=hf.intermediate_size,
        num_layers=hf.num_hidden_layers,
        num_heads=hf.num_attention_heads,
        num_kv_heads=hf.num_key_value_heads,
        head_dim=hf.head_dim,
        vocab_size=hf.vocab_size,
        context_length=hf.max_position_embeddings,
        rms_norm_eps=hf.rms_norm_eps,
        rope=RopeConfig(theta=10000.0),
        tied_embeddings=False,
    )


def _fill(chunk: Chunk, weights: dict[str, torch.Tensor]) -> None:
    for name, sources in chunk.sources().items():
        owner, _, leaf = name.rpartition(".")
        stacked = torch.cat([weights[source] for source in sources])
        setattr(chunk.get_submodule(owner), leaf, torch.nn.Parameter(stacked, requires_grad=False))


def _example(
    config: ModelConfig, table: torch.Tensor, layers: int, tokens: int, cache: CacheKind
) -> tuple[torch.Tensor, ...]:
    place = torch.tensor([0, tokens]) if cache == "ring" else additive_mask(tokens, CACHE, 0)
    hidden = torch.zeros(1, tokens, config.hidden_size)
    return (hidden, place, rotary_input(table, 0, tokens), *empty_caches(config, layers, CACHE))


def _lower(path: Path, backend: str, programs: dict[str, torch.export.ExportedProgram]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path.write_bytes(BACKENDS[backend].lower(programs).buffer)
