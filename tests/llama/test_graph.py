"""The chunk as a graph: one XNNPACK partition a method, and caches that may be the same memory on both sides."""

from __future__ import annotations

import warnings

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.extension.pybindings.portable_lib import _load_program_from_buffer

from etcli.llama.caches import empty_caches
from etcli.llama.chunk import Chunk
from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.llama.weights import load_weights

CACHE = 16
PROMPT = 4


def inputs(config, layers: int, tokens: int, seen: int):
    """Plausible inputs with filled caches."""
    generator = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(1, tokens, config.hidden_size, generator=generator)
    table = rope_table(config.rope, config.head_dim, 2 * CACHE)
    caches = [torch.randn(cache.shape, generator=generator) for cache in empty_caches(config, layers, CACHE)]
    return (hidden, additive_mask(tokens, CACHE, seen), rotary_input(table, seen, tokens), *caches)


def ring_inputs(config, layers: int, tokens: int, seen: int, valid: int):
    """The same for ring caches, `valid` tokens from position `seen`."""
    hidden, _, rotary, *caches = inputs(config, layers, tokens, seen)
    rotary[:, :, valid:] = 0
    return (hidden, torch.tensor([seen, valid]), rotary, *caches)


def lowered(chunk: Chunk, layers: int, partitioner):
    """Both methods of a chunk as one program, graph inputs and outputs unplanned."""
    methods = {
        f"net_{tokens}t{CACHE}c_0": torch.export.export(
            chunk,
            inputs(chunk.config, layers, tokens, 0)
            if chunk.cache == "shift"
            else ring_inputs(chunk.config, layers, tokens, 0, tokens),
        )
        for tokens in (PROMPT, 1)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        edge = to_edge_transform_and_lower(methods, partitioner=dict.fromkeys(methods, partitioner))
        planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
        return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


CASES = {
    "grouped_body": ({}, 2, False),
    "multi_query_tied_head_with_biases": (
        {
            "num_key_value_heads": 1,
            "head_dim": 24,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
        1,
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_xnnpack_takes_each_method_whole_and_caches_in_place(network, case: str) -> None:
    options, layers, head = CASES[case]
    _, checkpoint = network(**options)
    chunk = Chunk(checkpoint.config, 4 - layers, layers, head=head).eval()
    load_weights(chunk, checkpoint)
    program = lowered(chunk, layers, [XnnpackPartitioner()])
    plans = program.executorch_program.execution_plan
    assert len(plans) == 2
    for plan in plans:
        assert len(plan.delegates) == 1
        assert [operator.name for operator in plan.operators] == []
        assert len(plan.chains[0].instructions) == 1
    run_in_place(program, chunk, layers)


def test_portable_kernels_with_caches_in_place(network) -> None:
    _, checkpoint = network()
    chunk = Chunk(checkpoint.config, 3, 1, head=True).eval()
    load_weights(chunk, checkpoint)
    run_in_place(lowered(chunk, 1, []), chunk, 1)


@torch.no_grad()
def run_in_place(program, chunk: Chunk, layers: int) -> None:
    """Each method four times, its cache outputs the same memory as its cache inputs, against eager with separate memory."""
    loaded = _load_program_from_buffer(program.buffer)
    for tokens in (PROMPT, 1):
        method = loaded.load_method(f"net_{tokens}t{CACHE}c_0")
        values = inputs(chunk.config, layers, tokens, seen=0)
        ours = theirs = values[3:]
        for step in range(4):
            generator = torch.Generator().manual_seed(step)
            hidden = torch.randn(values[0].shape, generator=generator)
            mask = additive_mask(tokens, CACHE, step * tokens)
            expected, *theirs = chunk(hidden, mask, values[2], *theirs)
            method.set_inputs((hidden, mask, values[2], *ours))
            method.execute()
            # The method keeps its output storage, so from the second step on its own outputs are its inputs.
            actual, *outputs = method.get_outputs(False)
            same_memory = [old.data_ptr() == new.data_ptr() for old, new in zip(ours, outputs, strict=True)]
            assert same_memory == [step > 0] * (2 * layers)
            ours = outputs
            torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
            for mine, reference in zip(ours, theirs, strict=True):
                torch.testing.assert_close(mine, reference, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_new_caches_are_the_last_rows_of_old_and_new(network) -> None:
    _, checkpoint = network()
    chunk = Chunk(checkpoint.config, 0, 2, head=False).eval()
    load_weights(chunk, checkpoint)
    values = inputs(checkpoint.config, 2, PROMPT, seen=9)
    hidden, caches = values[0], values[3:]
    _, *shifted = chunk(*values)
    for old, new in zip(caches, shifted, strict=True):
        assert new.shape == old.shape
        assert new[:, :, :-PROMPT].equal(old[:, :, PROMPT:])
    layer = chunk.layers[0]
    value = layer.self_attn.project(layer.input_layernorm(hidden))[2].view(1, PROMPT, 2, 16).transpose(1, 2)
    assert shifted[2][:, :, -PROMPT:].equal(value), "all keys come first, then all values"


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.known_failure("export-missing-out-variant")
def test_a_ring_chunk_is_one_partition_more_than_it_has_layers_and_copies_nothing(
    network, layers: int, head: bool
) -> None:
    _, checkpoint = network(attention_bias=True)
    chunk = Chunk(checkpoint.config, 4 - layers, layers, head=head, cache="ring").eval()
    load_weights(chunk, checkpoint)
    plans = lowered(chunk, layers, [XnnpackPartitioner()]).executorch_program.execution_plan
    assert len(plans) == 2
    for plan in plans:
        assert len(plan.delegates) == layers + 1
        prompt = f"net_{PROMPT}t" in plan.name
        operators = {operator.name for operator in plan.operators}
        assert operators == {"etcli::ring_attention"} | ({"etcli::last_row"} if head and prompt else set())
        rows = 2 if head and prompt else 0  # of the residual stream and of the last attention
        assert len(plan.chains[0].instructions) == layers + 1 + layers + rows


def test_query_and_key_norms_leave_the_method_whole(network) -> None:
    _, checkpoint = network()
    config = checkpoint.config.model_copy(update={"qk_norm": True})
    chunk = Chunk(config, 0, 1, head=False).eval()
    for name, parameter in chunk.named_parameters():
        owner, _, leaf = name.rpartition(".")
        setattr(chunk.get_submodule(owner), leaf, torch.nn.Parameter(torch.randn(parameter.shape), requires_grad=False))
    for plan in lowered(chunk, 1, [XnnpackPartitioner()]).executorch_program.execution_plan:
        assert len(plan.delegates) == len(plan.chains[0].instructions) == 1
