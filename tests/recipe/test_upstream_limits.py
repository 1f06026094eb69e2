"""What upstream's MediaTek runner cannot run, told from a bundle's manifest alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import samples
from mtk_bundles import make_mtk_bundle, method
from tokenizer_kinds import bpe_folder

from etcli.common.errors import ExitCode
from etcli.common.workspace import Workspace
from etcli.manifests.bundle import BundleManifest, Shape
from etcli.manifests.model import RopeConfig
from etcli.recipe.loader import load
from etcli.recipe.upstream import bundle_problems, io_types, prompt_shape, rope_remark, runner_remark


@pytest.fixture
def bundle(tmp_path: Path) -> BundleManifest:
    loaded = samples.make_recipe(tmp_path, run={"runner": "mtk"})
    return make_mtk_bundle(loaded, Workspace(tmp_path / "work", "tiny"), bpe_folder(tmp_path / "model"))


def changed_method(bundle: BundleManifest, **changes: Any) -> BundleManifest:
    """The bundle with the first chunk's prompt method changed."""
    chunk = bundle.chunks[0]
    file = chunk.files[0]
    first = file.methods[0].model_copy(update=changes)
    file = file.model_copy(update={"methods": (first, *file.methods[1:])})
    return bundle.model_copy(update={"chunks": (chunk.model_copy(update={"files": (file,)}), *bundle.chunks[1:])})


def found(bundle: BundleManifest) -> list[tuple[str, str]]:
    problems = list(bundle_problems(bundle))
    assert all(problem.exit_code == ExitCode.USAGE and problem.hint for problem in problems)
    return [(problem.code, problem.message) for problem in problems]


def test_a_bundle_of_the_contract_passes(bundle: BundleManifest) -> None:
    assert found(bundle) == []
    assert str(prompt_shape(bundle)) == "8t64c"
    types = io_types(bundle)
    assert {types.input, types.output, types.cache, types.mask, types.rotary} == {"fp32"}


def test_a_ring(bundle: BundleManifest) -> None:
    assert [code for code, _ in found(bundle.model_copy(update={"cache": "ring"}))] == ["mtk.cache"]


@pytest.mark.parametrize(
    "shapes",
    [[(8, 64), (4, 64), (1, 64)], [(1, 64)], [(8, 64), (1, 32)], [(8, 64)]],
)
def test_other_than_one_prompt_shape_and_one_token(bundle: BundleManifest, shapes: list[tuple[int, int]]) -> None:
    wrong = bundle.model_copy(update={"shapes": tuple(Shape(tokens=tokens, cache=cache) for tokens, cache in shapes)})
    assert ("mtk.shapes") in [code for code, _ in found(wrong)]


@pytest.mark.known_failure("mtk-prompt-longer-than-cache")
def test_a_call_longer_than_the_cache(bundle: BundleManifest) -> None:
    wrong = bundle.model_copy(update={"shapes": (Shape(tokens=65, cache=64), Shape(tokens=1, cache=64))})
    assert any(
        code == "mtk.shapes" and "65 tokens is longer than the cache of 64" in message for code, message in found(wrong)
    )


@pytest.mark.known_failure("mtk-unequal-chunks")
def test_unequal_layers(bundle: BundleManifest) -> None:
    first = bundle.chunks[0].files[0]
    more = tuple(method(old.name, old.shape, layers=2, first=True, last=False) for old in first.methods)
    chunk = bundle.chunks[0].model_copy(update={"layers": 2, "files": (first.model_copy(update={"methods": more}),)})
    assert [code for code, _ in found(bundle.model_copy(update={"chunks": (chunk, bundle.chunks[1])}))] == [
        "mtk.layers"
    ]


@pytest.mark.parametrize("name", ["tiny_0", "tiny_8t64c_1t64c_0", "tiny_1t64c_0"])
def test_a_name_without_its_shape_exactly_once(bundle: BundleManifest, name: str) -> None:
    ((code, message),) = found(changed_method(bundle, name=name))
    assert code == "mtk.method_name"
    assert name in message


def test_tensors_that_are_not_of_the_contract(bundle: BundleManifest) -> None:
    shorter = bundle.chunks[0].files[0].methods[0].outputs[:-1]
    assert [code for code, _ in found(changed_method(bundle, outputs=shorter))] == ["mtk.tensors"]


@pytest.mark.known_failure("mtk-types-left-at-default", "mtk-cache-read-at-another-width")
def test_types_that_the_runner_lacks_or_that_differ(bundle: BundleManifest) -> None:
    inputs = bundle.chunks[0].files[0].methods[0].inputs
    caches = tuple(spec.model_copy(update={"dtype": "int8"}) for spec in inputs[3:])
    ((code, message),) = found(changed_method(bundle, inputs=(*inputs[:3], *caches)))
    assert code == "mtk.types"
    assert "cache tensors, the bundle has float32, int8" in message
    half = bundle.embedding.model_copy(update={"dtype": "float16", "size": bundle.embedding.size // 2})
    assert (
        "input tensors, the bundle has float16, float32" in found(bundle.model_copy(update={"embedding": half}))[0][1]
    )


@pytest.mark.known_failure("mtk-embedding-rows")
def test_an_embedding_of_other_rows_or_groups(bundle: BundleManifest) -> None:
    for change in ({"rows": 350}, {"size": bundle.embedding.size - 4}, {"cols": 16}):
        wrong = bundle.model_copy(update={"embedding": bundle.embedding.model_copy(update=change)})
        assert [code for code, _ in found(wrong)] == ["mtk.embedding"]
    groups = bundle.embedding.model_copy(update={"dtype": "int4", "group_size": 4})
    assert any("is int4 in groups" in message for _, message in found(bundle.model_copy(update={"embedding": groups})))


@pytest.mark.known_failure("mtk-rope-scaling")
@pytest.mark.parametrize("kind", ["llama3", "linear"])
def test_scaled_positions(bundle: BundleManifest, kind: str, tmp_path: Path) -> None:
    scaled = bundle.model.model_copy(update={"rope": RopeConfig(theta=5e5, kind=kind, factor=32.0)})
    assert rope_remark(bundle.model) is None
    assert f"({kind}, factor 32)" in (rope_remark(scaled) or "")
    for runner in ("mtk", "etcli"):
        loaded = samples.make_recipe(tmp_path, run={"runner": runner})
        assert (runner_remark(loaded, scaled) is not None) == (runner == "mtk")
        assert runner_remark(loaded, bundle.model) is None


@pytest.mark.parametrize("embedding", ["int8", "int4", "fp16"])
def test_a_recipe_with_another_embedding_is_refused(tmp_path: Path, embedding: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        f"name: a\nmodel: {{source: x}}\nexport: {{embedding: {embedding}, shapes: [8t64c, 1t64c]}}\nrun: {{runner: mtk}}\n"
    )
    with pytest.raises(Exception, match=f"takes float32 and not {embedding}"):
        load(str(path))
