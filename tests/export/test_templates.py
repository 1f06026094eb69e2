"""Weights put into a lowered program give the file that lowering them gives; what a template cannot hold is lowered the ordinary way."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etcli.ops.attention  # noqa: F401 - registers the ring's operators
from etcli.export.backends.registry import BACKENDS
from etcli.export.job import ChunkWork, NamedShape, PrecisionSettings, Variant
from etcli.export.lowering import PROGRAM, write_program
from etcli.export.measure import Steps
from etcli.export.quantizers.base import StoredBlob
from etcli.export.quantizers.registry import quantise, stored_blobs
from etcli.export.runtime import run_method
from etcli.export.samples import sample_inputs
from etcli.export.templates.cache import TemplateCache
from etcli.export.templates.filling import fill
from etcli.export.templates.template import Refused, Template, load_template, save_template
from etcli.llama.chunk import Chunk
from etcli.manifests.bundle import CacheKind, Shape
from etcli.manifests.model import AqlmConfig, ModelConfig, RopeConfig
from etcli.pte.facts import ProgramFacts
from etcli.pte.read import read_program

CONFIG = ModelConfig(
    architecture="llama",
    hidden_size=64,
    intermediate_size=96,
    num_layers=22,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=128,
    context_length=64,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=1e4),
    tied_embeddings=True,
)
SHAPES = (Shape(tokens=4, cache=32), Shape(tokens=1, cache=32))


def settings(precision: str) -> PrecisionSettings:
    if precision == "8da4w":
        return PrecisionSettings(precision="8da4w", group_size=32, head="8da8w")
    if precision == "aqlm":
        return PrecisionSettings(precision="aqlm", group_size=32, head="8da4w")
    return PrecisionSettings(precision=precision, head=precision)


def network(seed: int, *, head: bool, cache: CacheKind, precision: str = "fp32") -> Chunk:
    """A chunk of one random layer."""
    generator = torch.Generator().manual_seed(seed)
    aqlm = AqlmConfig(codebooks=2, kept=("model.layers.0.mlp.up_proj",)) if precision == "aqlm" else None
    config = CONFIG.model_copy(update={"aqlm": aqlm})
    chunk = Chunk(config, CONFIG.num_layers - 1 if head else 0, 1, head=head, cache=cache).eval()
    for name, parameter in list(chunk.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        values = torch.randn(parameter.shape, generator=generator) * 0.1 + ("norm" in name)
        if parameter.dtype == torch.int8:
            values = torch.randint(-128, 128, parameter.shape, generator=generator, dtype=torch.int8)
        setattr(chunk.get_submodule(owner), leaf, torch.nn.Parameter(values, requires_grad=False))
    quantise(chunk, settings(precision))
    return chunk


def names(index: int) -> tuple[str, ...]:
    return tuple(f"net_{shape}_{index}" for shape in SHAPES)


def work(index: int, chunk: Chunk, backend: str, precision: str = "fp32") -> ChunkWork:
    return ChunkWork(
        index=index,
        first_layer=chunk.first_layer,
        layers=1,
        head=chunk.lm_head is not None,
        methods=tuple(NamedShape(name=name, shape=shape) for name, shape in zip(names(index), SHAPES, strict=True)),
        backend=backend,
        cache=chunk.cache,
        precision=settings(precision),
        tolerance=1e-4,
    )


def lowered(
    folder: Path, index: int, chunk: Chunk, backend: str, precision: str = "fp32", variants: tuple[int, ...] = ()
) -> str | None:
    """Lower into `folder`, with templates `INDEX.template`; why there is none."""
    folder.mkdir()
    wanted = tuple(Variant(file=f"{variant}.template", names=names(variant)) for variant in variants)
    with torch.no_grad():
        return write_program(chunk, work(index, chunk, backend, precision), folder, Steps(), wanted)


@pytest.mark.parametrize(
    ("cache", "head", "backend", "precision"),
    [
        ("shift", False, "xnnpack", "fp32"),
        ("ring", False, "xnnpack", "fp32"),
        ("ring", True, "xnnpack", "fp32"),
        ("ring", True, "xnnpack", "8da4w"),
        ("shift", False, "xnnpack", "fp16"),
        ("shift", True, "portable", "fp32"),
        ("ring", True, "xnnpack", "aqlm"),
        ("shift", False, "xnnpack", "aqlm"),
        ("ring", False, "portable", "aqlm"),
    ],
)
def test_a_filled_template_is_the_file_that_lowering_gives(
    tmp_path: Path, cache: CacheKind, head: bool, backend: str, precision: str
) -> None:
    """The template comes of chunk 3, for names as long as its own and longer ones; chunk 17 is lowered for comparison."""
    first, other = (network(seed, head=head, cache=cache, precision=precision) for seed in (1, 2))
    assert lowered(tmp_path / "first", 3, first, backend, precision, variants=(3, 10)) is None
    lowered(tmp_path / "other", 17, other, backend, precision)
    expected = (tmp_path / "other" / PROGRAM).read_bytes()
    blobs = stored_blobs(other, settings(precision))
    digest = fill(tmp_path / "first" / "10.template", tmp_path / "filled.pte", names(17), blobs)
    assert (tmp_path / "filled.pte").read_bytes() == expected
    assert digest == hashlib.sha256(expected).hexdigest()
    own = fill(
        tmp_path / "first" / "3.template", tmp_path / "own.pte", names(3), stored_blobs(first, settings(precision))
    )
    assert own == hashlib.sha256((tmp_path / "first" / PROGRAM).read_bytes()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Made:
    """A body chunk of cache `shift` and the template made of it."""

    chunk: Chunk
    template: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    chunk = network(1, head=False, cache="shift")
    folder = tmp_path_factory.mktemp("made") / "program"
    assert lowered(folder, 3, chunk, "xnnpack", variants=(3,)) is None
    return Made(chunk, folder / "3.template")


def blobs(chunk: Chunk) -> Iterator[StoredBlob]:
    return stored_blobs(chunk, settings("fp32"))


def test_every_key_is_new_so_that_a_weight_cache_cannot_mix_chunks_up(made: Made, tmp_path: Path) -> None:
    """XNNPACK's weight cache goes by keys: two programs of one key share the weights of whichever was loaded first."""
    own, other = tmp_path / "own.pte", tmp_path / "other.pte"
    second = network(2, head=False, cache="shift")
    fill(made.template, own, names(3), blobs(made.chunk))
    fill(made.template, other, names(4), blobs(second))
    template, skeleton = load_template(made.template)
    weights = [{entry.key for entry in read_program(path).named_data} - set(template.fixed) for path in (own, other)]
    keyed = [hole for hole in template.holes if hole.digests]
    assert {hole.parameter.rpartition(".")[0] for hole in keyed} >= {
        "layers.0.mlp.down_proj",
        "layers.0.self_attn.o_proj",
    }
    assert len(weights[0]) == len(keyed)
    assert not weights[0] & weights[1]
    assert not any(key.encode() in other.read_bytes() for key in weights[0])
    assert len(skeleton) < 100_000

    from executorch.extension.pybindings import _C

    inputs = [*sample_inputs(CONFIG, 1, SHAPES[1], "shift", seed=0)]
    programs = [_C._load_program(str(path), enable_etdump=False, debug_buffer_size=0) for path in (own, other)]
    methods = [program.load_method(names(index)[1]) for program, index in zip(programs, (3, 4), strict=True)]
    outputs = [method(inputs)[0].clone() for method in methods]  # both loaded at once
    for output, chunk in zip(outputs, (made.chunk, second), strict=True):
        assert torch.allclose(output, chunk(*inputs)[0], atol=1e-4)
    assert torch.equal(run_method(other, names(4)[1], inputs)[0], outputs[1])


def equal_norms(chunk: Chunk) -> None:
    weight = chunk.layers[0].input_layernorm.weight.clone()
    chunk.layers[0].post_attention_layernorm.weight = torch.nn.Parameter(weight, requires_grad=False)


def like_the_mean_row(chunk: Chunk) -> None:
    norm = chunk.layers[0].input_layernorm
    norm.weight = torch.nn.Parameter(norm.mean_row.view(-1).clone(), requires_grad=False)


@pytest.mark.parametrize("change", [equal_norms, like_the_mean_row])
def test_equal_constants_are_refused_in_both_directions(
    made: Made, tmp_path: Path, change: Callable[[Chunk], None]
) -> None:
    """Lowering writes equal constants once: such a chunk neither fills a template nor makes one."""
    chunk = network(2, head=False, cache="shift")
    change(chunk)
    with pytest.raises(Refused, match="equal"):
        fill(made.template, tmp_path / "filled.pte", names(4), blobs(chunk))
    reason = lowered(tmp_path / "own", 4, chunk, "xnnpack", variants=(4,))
    assert "equal" in str(reason)
    assert not (tmp_path / "own" / "4.template").exists()


def test_equal_codebooks_of_two_linears_are_refused_in_both_directions(tmp_path: Path) -> None:
    """Some quantisers could share them; lowering writes them once, so such a network is lowered the ordinary way."""
    own, chunk = (network(seed, head=False, cache="ring", precision="aqlm") for seed in (1, 2))
    assert lowered(tmp_path / "own", 3, own, "portable", "aqlm", variants=(3,)) is None
    attention = chunk.layers[0].self_attn
    attention.k_proj.codebooks = torch.nn.Parameter(attention.q_proj.codebooks.clone(), requires_grad=False)
    with pytest.raises(Refused, match=r"k_proj\.codebooks and layers\.0\.self_attn\.q_proj\.codebooks are equal"):
        fill(tmp_path / "own" / "3.template", tmp_path / "filled.pte", names(4), stored_blobs(chunk, settings("aqlm")))
    reason = lowered(tmp_path / "shared", 4, chunk, "portable", "aqlm", variants=(4,))
    assert "equal" in str(reason)
    program = (tmp_path / "shared" / PROGRAM).read_bytes()
    assert program.count(attention.q_proj.codebooks.numpy().tobytes()) == 1


def test_what_no_constant_of_the_network_explains_is_refused(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import etcli.export.lowering as lowering

    monkeypatch.setattr(lowering, "buffer_blobs", lambda _chunk: iter(()))
    reason = lowered(tmp_path / "own", 4, network(2, head=False, cache="shift"), "xnnpack", variants=(4,))
    assert "are no constant that the network has" in str(reason)
    assert (tmp_path / "own" / PROGRAM).exists()


def test_another_graph_other_lengths_and_damage_are_refused(made: Made, tmp_path: Path) -> None:
    target = tmp_path / "filled.pte"
    with pytest.raises(Refused, match="other lengths"):
        fill(made.template, target, names(10), blobs(made.chunk))
    with pytest.raises(Refused, match="another graph"):
        fill(made.template, target, names(4), list(blobs(made.chunk))[1:])
    damaged = tmp_path / "damaged.template"
    content = made.template.read_bytes()
    flipped = []
    for place in range(0, len(content), max(1, len(content) // 300)):
        flipped.append(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
    for broken in flipped:  # whatever the damage: refused, or what stood there says nothing (a date, a hint)
        damaged.write_bytes(broken)
        with contextlib.suppress(Refused):
            assert load_template(damaged) == load_template(made.template)
    for broken in (b"", content[: len(content) // 2], content.replace(b"PK", b"XX")):
        damaged.write_bytes(broken)
        with pytest.raises(Refused, match="cannot be read"):
            fill(damaged, target, names(4), blobs(made.chunk))
    template, skeleton = load_template(made.template)
    save_template(damaged, template, skeleton[:-1])
    with pytest.raises(Refused, match="contradicts itself"):
        fill(damaged, target, names(4), blobs(made.chunk))
    save_template(damaged, template, skeleton)
    assert damaged.read_bytes() == content
    with zipfile.ZipFile(made.template) as archive:
        assert archive.testzip() is None
    assert set(BACKENDS) >= {"xnnpack", "portable"}


def test_the_cache_keeps_what_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from etcli.export.templates import cache as module

    cache, source = TemplateCache(tmp_path / "cache"), tmp_path / "source"
    save_template(source, Template(methods=(), holes=(), fixed=(), size=1), b"x")
    monkeypatch.setattr(module, "KEPT_BYTES", 5 * source.stat().st_size // 2)
    for number, key in enumerate(("a", "b")):
        cache.keep(key, source)
        os.utime(tmp_path / "cache" / "templates" / f"{key}.template", (number + 1, number + 1))
    assert cache.take("a", tmp_path / "taken" / "a")
    assert (tmp_path / "taken" / "a").read_bytes() == source.read_bytes()
    cache.keep("c", source)
    assert not cache.take("b", tmp_path / "taken" / "b")
    assert cache.take("a", tmp_path / "taken" / "a")
    assert cache.take("c", tmp_path / "taken" / "c")


def test_a_damaged_template_in_the_cache_is_replaced(made: Made, tmp_path: Path) -> None:
    cache = TemplateCache(tmp_path / "cache")
    cache.keep("a", made.template)
    kept = tmp_path / "cache" / "templates" / "a.template"
    content = kept.read_bytes()
    kept.write_bytes(content[:1000] + bytes(100) + content[1100:])
    assert not cache.take("a", tmp_path / "taken")
    assert not cache.has("a")
    assert not (tmp_path / "taken").exists()
    cache.keep("a", made.template)
    assert cache.take("a", tmp_path / "taken")


def test_weights_filed_under_something_else_than_their_hash_make_no_template(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is not written anew would be that of the first chunk, whose weights a weight cache would take."""
    from etcli.export.templates import cutting as module

    def by_name(path: Path, **options: Any) -> ProgramFacts:
        facts = read_program(path, **options)
        named = tuple(dataclasses.replace(entry, key=f"weight {entry.segment}") for entry in facts.named_data)
        return dataclasses.replace(facts, named_data=named)

    monkeypatch.setattr(module, "read_program", by_name)
    reason = lowered(tmp_path / "own", 4, made.chunk, "xnnpack", variants=(4,))
    assert "not the hash of its bytes" in str(reason)


def test_a_cache_that_cannot_be_written_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    cache = TemplateCache(tmp_path / "cache")
    cache.keep("a", tmp_path / "cache")
    assert not cache.take("a", tmp_path / "taken")
