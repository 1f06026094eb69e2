"""What upstream's `mtk_llama_executor_runner` takes of a bundle, and what it would compute wrongly without a word.

The runner is told everything by flags and compares none of it with the programs: wrong types, a wrong number of heads or a table of another
base give fluent nonsense and exit status 0. So a bundle is held against its contract here, before anything is sent or started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from etcli.common.errors import Problem, UsageError
from etcli.manifests.bundle import BundleManifest, Chunk, Method, Shape
from etcli.manifests.model import ModelConfig
from etcli.recipe.loaded import LoadedRecipe

TYPES = {"float32": "fp32", "float16": "fp16", "int16": "int16"}
"""Types of tensors as the runner's flags call them: those that it can fill (mask, rotary table) and compare (logits)."""

_SHAPE = re.compile(r"\d+t\d+c")
_ETCLI = "Use run.runner: etcli"


@dataclass(frozen=True)
class IoTypes:
    """The runner's five type flags."""

    input: str
    output: str
    cache: str
    mask: str
    rotary: str


def rope_remark(model: ModelConfig) -> str | None:
    """Why the runner gives this network wrong positions, or None. It knows rotary embedding's base and no scaling."""
    if model.rope.kind == "default":
        return None
    return (
        f"this network scales its rotary embedding ({model.rope.kind}, factor {model.rope.factor:g}), and the mtk runner has no way to be told: "
        "it computes unscaled positions, and the answers get worse with every token"
    )


def runner_remark(loaded: LoadedRecipe, model: ModelConfig) -> str | None:
    """What to say of this network before it is exported for the runner that the recipe names."""
    remark = rope_remark(model) if loaded.recipe.run.runner == "mtk" else None
    return (
        None if remark is None else f"{remark}; `run` will ask for --force. {_ETCLI}, which reads the exported table."
    )


def bundle_problems(bundle: BundleManifest) -> Iterator[Problem]:
    """Everything because of which the runner cannot run `bundle`; rotary scaling, with which it runs and is wrong, is `rope_remark`'s."""
    if bundle.cache != "shift":
        yield _problem(
            "cache",
            f"the mtk runner shifts its caches, the bundle's are of kind {bundle.cache}",
            "Export with export.cache: shift.",
        )
        return
    yield from _shape_problems(bundle)
    yield from _embedding_problems(bundle)
    layers = sorted({chunk.layers for chunk in bundle.chunks})
    if len(layers) != 1:
        yield _problem(
            "layers",
            f"the mtk runner gives every chunk the same number of caches, the chunks have {' and '.join(map(str, layers))} layers",
            "Export with a number of chunks that divides the layers.",
        )
    wrong = [
        method.name
        for chunk, method in _methods(bundle)
        if (len(method.inputs), len(method.outputs)) != (3 + 2 * chunk.layers, 1 + 2 * chunk.layers)
    ]
    if wrong:
        yield _problem(
            "tensors",
            f"the mtk runner binds hidden, mask, rotary and two caches a layer, and these methods have other tensors: {', '.join(wrong[:3])[:300]}",
            "Export again.",
        )
        return
    yield from _type_problems(bundle)


def prompt_shape(bundle: BundleManifest) -> Shape:
    """The one prompt shape of a bundle without `bundle_problems`."""
    return next(shape for shape in bundle.shapes if shape.tokens > 1)


def io_types(bundle: BundleManifest) -> IoTypes:
    """The type flags for a bundle without `bundle_problems`."""
    found = _types(bundle)
    return IoTypes(**{role: TYPES[next(iter(dtypes))] for role, dtypes in found.items()})


def _shape_problems(bundle: BundleManifest) -> Iterator[Problem]:
    prompts = [shape for shape in bundle.shapes if shape.tokens > 1]
    told = ", ".join(map(str, bundle.shapes))
    if len(prompts) != 1 or len(bundle.shapes) != 2 or len({shape.cache for shape in bundle.shapes}) != 1:
        yield _problem(
            "shapes",
            f"the mtk runner takes one prompt shape (T of 2 or more) and 1t of the same cache, the bundle has {told}",
            "Export with two shapes, as export.shapes: [32t512c, 1t512c].",
        )
        return
    if prompts[0].tokens > prompts[0].cache:
        yield _problem(
            "shapes",
            f"a prompt call of {prompts[0].tokens} tokens is longer than the cache of {prompts[0].cache}, which makes the mtk runner overwrite memory",
            "Export a prompt shape of at most as many tokens as the cache holds.",
        )
    for _, method in _methods(bundle):
        if _SHAPE.findall(method.name) != [str(method.shape)]:
            yield _problem(
                "method_name",
                f"the mtk runner finds a method by its shape, which must stand exactly once in its name; {method.name[:100]!r} is of shape {method.shape}",
                "Give the recipe a name that holds no digits-t-digits-c, and export again.",
            )


def _embedding_problems(bundle: BundleManifest) -> Iterator[Problem]:
    embedding, model = bundle.embedding, bundle.model
    if embedding.dtype not in TYPES:
        yield _problem(
            "embedding",
            f"the mtk runner looks tokens up in plain numbers, the bundle's embedding is {embedding.dtype} in groups",
            "Export with export.embedding: fp32, or use run.runner: etcli.",
        )
        return
    size = embedding.rows * embedding.cols * (2 if embedding.dtype == "float16" else 4)
    if embedding.size != size or (embedding.rows, embedding.cols) != (model.vocab_size, model.hidden_size):
        yield _problem(
            "embedding",
            f"the embedding has {embedding.size:,} bytes for {embedding.rows:,} rows of {embedding.cols:,}, the model is {model.vocab_size:,} by "
            f"{model.hidden_size:,}: the mtk runner would count other rows",
            "Export again.",
        )


def _type_problems(bundle: BundleManifest) -> Iterator[Problem]:
    for role, dtypes in _types(bundle).items():
        if len(dtypes) != 1:
            yield _problem(
                "types",
                f"the mtk runner is told one type of {role} tensors, the bundle has {', '.join(sorted(dtypes)) or 'none'}",
                _ETCLI + ".",
            )
        elif unknown := set(dtypes) - set(TYPES):
            yield _problem("types", f"the mtk runner has no {role} tensors of {unknown.pop()[:40]}", _ETCLI + ".")


def _types(bundle: BundleManifest) -> dict[str, set[str]]:
    """The types that stand at each role in any method, by the order of the contract. The embedding's rows are what the first chunk is given."""
    found: dict[str, set[str]] = {role: set() for role in ("input", "output", "cache", "mask", "rotary")}
    found["input"].add(bundle.embedding.dtype)
    last = len(bundle.chunks) - 1
    for place, chunk in enumerate(bundle.chunks):
        for method in (method for file in chunk.files for method in file.methods):
            hidden, mask, rotary, *caches = (spec.dtype for spec in method.inputs)
            out, *more = (spec.dtype for spec in method.outputs)
            found["mask"].add(mask)
            found["rotary"].add(rotary)
            found["cache"] |= {*caches, *more}
            if place == 0:
                found["input"].add(hidden)
            if place == last:
                found["output"].add(out)
    return found


def _methods(bundle: BundleManifest) -> Iterator[tuple[Chunk, Method]]:
    return ((chunk, method) for chunk in bundle.chunks for file in chunk.files for method in file.methods)


def _problem(what: str, message: str, hint: str) -> Problem:
    return UsageError.problem(message, code=f"mtk.{what}", hint=hint)
