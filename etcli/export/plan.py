"""What a recipe and a network's numbers come to: chunks, methods, tensors, sizes. From headers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from etcli.checkpoint.layout import EMBEDDING, HEAD, NORM, expected_shapes
from etcli.checkpoint.sizes import loaded_bytes
from etcli.common.errors import RecipeError, UsageError
from etcli.export.job import EmbeddingDtype, EmbeddingSettings, NamedShape, PrecisionSettings
from etcli.export.neuron.plan import NpuPlan
from etcli.export.settings import embedding_settings, precision_settings
from etcli.manifests.bundle import CacheKind, Shape
from etcli.manifests.model import ModelConfig
from etcli.recipe.fingerprint import cache_kind
from etcli.recipe.fit import fit_problems
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe

_FLOAT32 = 4
_WEIGHT_BITS = {
    "fp32": 32,
    "fp16": 16,
    "8da8w": 8,
    "8da4w": 4,
    "aqlm": 32,
    "A16W16": 16,
    "A16W8": 8,
    "A16W4": 8,  # 4 bits are handed to the NPU's compiler in bytes; how it stores them is its own
    "A8W8": 8,
    "A8W4": 8,
}
"""Of the weights that `nn.Linear` has: with aqlm those that the checkpoint keeps from it."""
_EMBEDDING_BITS: dict[EmbeddingDtype, int] = {"float32": 32, "float16": 16, "int8": 8, "int4": 4}


@dataclass(frozen=True)
class ProgramPlan:
    """A `.pte` of chunk `chunk`: its place in the bundle, and its methods."""

    chunk: int
    file: str
    methods: tuple[NamedShape, ...]


@dataclass(frozen=True)
class ChunkPlan:
    """Layers `first_layer .. first_layer + layers - 1`.

    Attributes:
        head: whether it ends in logits.
        programs: one with every method, or one a method, as the layout says.
        tensors: canonical names of the weights.
        weights_bytes: their size in memory: in float32, AQLM's codes as they are.
        largest_bytes: that of the largest of them.
        stored_bytes: the size of all in a program, as the precision stores them.
    """

    index: int
    first_layer: int
    layers: int
    head: bool
    programs: tuple[ProgramPlan, ...]
    tensors: tuple[str, ...]
    weights_bytes: int
    largest_bytes: int
    stored_bytes: int

    @property
    def reference(self) -> str:
        """The place in the bundle of its quantised graph, which backends have that quantise graphs."""
        return f"reference/chunk_{self.index}.pt2"


@dataclass(frozen=True)
class ExportPlan:
    """The whole export. `embedding_bytes` and `rope_bytes` are the sizes of the two raw tables, which run from position 0 to `positions`.

    `npu` is what chunks for the NPU are made for, None with other backends.
    """

    name: str
    backend: str
    precision: PrecisionSettings
    embedding: EmbeddingSettings
    cache: CacheKind
    shapes: tuple[Shape, ...]
    chunks: tuple[ChunkPlan, ...]
    positions: int
    embedding_bytes: int
    rope_bytes: int
    npu: NpuPlan | None = None

    @property
    def programs(self) -> tuple[ProgramPlan, ...]:
        """Those of all chunks."""
        return tuple(program for chunk in self.chunks for program in chunk.programs)


def make_plan(loaded: LoadedRecipe, config: ModelConfig) -> ExportPlan:
    """Divide the network as the recipe asks.

    A method is named `NAME_<T>t<C>c_CHUNK`: runners find the shape by that pattern, which a recipe's name never holds.

    Raises:
        RecipeError: what `recipe.fit` finds: layers that chunks cannot share equally, a cache longer than a sliding window.
    """
    problems = list(fit_problems(loaded, config))
    if problems:
        raise RecipeError.many(problems)
    recipe = loaded.recipe
    shapes = recipe.export.parsed_shapes
    positions = shapes[0].cache
    layers = config.num_layers // recipe.export.chunks
    shapes_of = expected_shapes(config)
    sizes = {name: loaded_bytes(name, shape) for name, shape in shapes_of.items()}
    embedding, precision = embedding_settings(recipe), precision_settings(recipe)
    chunks = []
    for index in range(recipe.export.chunks):
        head = index == recipe.export.chunks - 1
        tensors = _tensors(sizes, range(index * layers, (index + 1) * layers), config, head=head)
        chunks.append(
            ChunkPlan(
                index=index,
                first_layer=index * layers,
                layers=layers,
                head=head,
                programs=_programs(recipe, index),
                tensors=tensors,
                weights_bytes=sum(sizes[name] for name in tensors),
                largest_bytes=max(sizes[name] for name in tensors),
                stored_bytes=sum(_stored_bytes(name, shapes_of[name], precision) for name in tensors),
            )
        )
    return ExportPlan(
        name=recipe.name,
        backend=recipe.export.backend,
        precision=precision,
        embedding=embedding,
        cache=cache_kind(recipe),
        shapes=shapes,
        chunks=tuple(chunks),
        positions=positions,
        embedding_bytes=config.vocab_size * row_bytes(embedding, config.hidden_size),
        rope_bytes=positions * 2 * config.head_dim * _FLOAT32,
    )


def _programs(recipe: Recipe, index: int) -> tuple[ProgramPlan, ...]:
    methods = [NamedShape(name=f"{recipe.name}_{shape}_{index}", shape=shape) for shape in recipe.export.parsed_shapes]
    if recipe.export.layout == "separate":
        return tuple(ProgramPlan(index, f"chunks/{method.name}.pte", (method,)) for method in methods)
    return (ProgramPlan(index, f"chunks/{recipe.name}_{index}.pte", tuple(methods)),)


def _stored_bytes(name: str, shape: tuple[int, ...], settings: PrecisionSettings) -> int:
    """A tensor's bytes in a program: linears as their precision stores them, scales included, all else as it is in memory."""
    count = math.prod(shape)
    if len(shape) != 2:
        return loaded_bytes(name, shape)
    precision = settings.head if name in (EMBEDDING, HEAD) else settings.precision
    scales = {"8da4w": 2 * count // (settings.group_size or count), "8da8w": _FLOAT32 * shape[0]}
    return count * _WEIGHT_BITS[precision] // 8 + scales.get(precision, 0)


def row_bytes(embedding: EmbeddingSettings, columns: int) -> int:
    """Bytes of a row of the embedding file, scales included."""
    scales = 0 if embedding.group_size is None else columns // embedding.group_size * _FLOAT32
    return scales + columns * _EMBEDDING_BITS[embedding.dtype] // 8


def chosen_chunks(plan: ExportPlan, only: tuple[int, ...] | None) -> tuple[ChunkPlan, ...]:
    """The chunks to export.

    Raises:
        UsageError: `export.no_such_chunk`.
    """
    check_chosen(len(plan.chunks), only)
    return plan.chunks if only is None else tuple(chunk for chunk in plan.chunks if chunk.index in only)


def check_chosen(chunks: int, only: tuple[int, ...] | None) -> None:
    """Whether a recipe of so many chunks has those of `only`.

    Raises:
        UsageError: `export.no_such_chunk`.
    """
    unknown = sorted({index for index in only or () if not 0 <= index < chunks})
    if unknown:
        raise UsageError(
            f"--only-chunks: there is no chunk {', '.join(map(str, unknown[:5]))}{', ...' if unknown[5:] else ''}",
            code="export.no_such_chunk",
            hint=f"The recipe's chunks are 0 to {chunks - 1}.",
        )


def _tensors(sizes: dict[str, int], layers: range, config: ModelConfig, *, head: bool) -> tuple[str, ...]:
    prefixes = tuple(f"model.layers.{layer}." for layer in layers)
    names = [name for name in sizes if name.startswith(prefixes)]
    if head:
        names += [NORM, EMBEDDING if config.tied_embeddings else HEAD]
    return tuple(names)
