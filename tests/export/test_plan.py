"""What a recipe and a network's numbers come to."""

from __future__ import annotations

import pytest
from small_export import load_document

from etcli.common.errors import EtcliError, RecipeError, UsageError
from etcli.export.backends.registry import backend_for
from etcli.export.plan import chosen_chunks, make_plan
from etcli.manifests.model import ModelConfig, RopeConfig

CONFIG = ModelConfig(
    architecture="llama",
    hidden_size=8,
    intermediate_size=12,
    num_layers=6,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    vocab_size=10,
    context_length=64,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=1e4),
    tied_embeddings=True,
)
LAYER = 4 * (8 + 8 + 2 * 8 * 8 + 2 * 4 * 8 + 3 * 8 * 12)


def document(**export: object) -> dict[str, object]:
    return {"name": "a.b-1", "model": {"source": "x"}, "export": {"shapes": ["1t32c", "4t32c", "16t32c"], **export}}


def test_chunks_methods_and_sizes() -> None:
    plan = make_plan(load_document(document(chunks=3)), CONFIG)
    assert [(chunk.first_layer, chunk.layers, chunk.head) for chunk in plan.chunks] == [
        (0, 2, False),
        (2, 2, False),
        (4, 2, True),
    ]
    (program,) = plan.chunks[2].programs
    assert program.file == "chunks/a.b-1_2.pte"
    assert [method.name for method in program.methods] == ["a.b-1_16t32c_2", "a.b-1_4t32c_2", "a.b-1_1t32c_2"]
    assert [chunk.weights_bytes for chunk in plan.chunks] == [2 * LAYER, 2 * LAYER, 2 * LAYER + 4 * (8 + 80)]
    assert [chunk.largest_bytes for chunk in plan.chunks] == [4 * 8 * 12] * 3
    assert plan.chunks[2].tensors[-2:] == ("model.norm.weight", "model.embed_tokens.weight")
    assert plan.embedding_bytes == 4 * 80
    assert plan.rope_bytes == 32 * 2 * 4 * 4


def test_layout_separate_is_a_file_a_chunk_and_shape() -> None:
    plan = make_plan(load_document(document(chunks=3, layout="separate")), CONFIG)
    files = [f"chunks/a.b-1_{tokens}t32c_1.pte" for tokens in (16, 4, 1)]
    assert [program.file for program in plan.chunks[1].programs] == files
    assert [[method.name for method in program.methods] for program in plan.chunks[1].programs] == [
        [f"a.b-1_{tokens}t32c_1"] for tokens in (16, 4, 1)
    ]
    assert len(plan.programs) == 9


def test_untied_head_reads_its_own_weight() -> None:
    plan = make_plan(load_document(document(chunks=1)), CONFIG.model_copy(update={"tied_embeddings": False}))
    assert plan.chunks[0].tensors[-1] == "lm_head.weight"


def test_indivisible_layers_name_what_fits_and_where() -> None:
    with pytest.raises(EtcliError) as caught:
        make_plan(load_document(document(chunks=4)), CONFIG)
    (problem,) = caught.value.problems
    assert problem.exit_code == 2
    assert "1, 2, 3, 6" in str(problem.hint)
    assert problem.place == "small.yaml:7:3"


def test_only_chunks() -> None:
    plan = make_plan(load_document(document(chunks=3)), CONFIG)
    assert [chunk.index for chunk in chosen_chunks(plan, (2, 0))] == [0, 2]
    assert chosen_chunks(plan, None) == plan.chunks
    with pytest.raises(UsageError, match="no chunk 3, 9"):
        chosen_chunks(plan, (9, 0, 3))


@pytest.mark.parametrize(
    "export", [{"backend": "neuron", "precision": "8da4w"}, {"backend": "portable", "precision": "8da4w"}]
)
@pytest.mark.known_failure("export-wrong-flow")
def test_unknown_backend_or_precision_is_refused(export: dict[str, str]) -> None:
    with pytest.raises(RecipeError) as caught:
        backend_for(load_document(document(**export)))
    assert caught.value.problems[0].code == "recipe.unsupported"
