"""What quantising cost a network for the NPU: its chunks' quantised graphs against float32, on a text. Runs in the evaluation's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.export.neuron.graph_file import load_graph
from etcli.export.quality import quality, relative_error
from etcli.llama.caches import empty_caches
from etcli.llama.chunk import Chunk
from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.llama.weights import load_embedding_rows, load_weights
from etcli.manifests.export_report import Quality


@torch.no_grad()
def compared_graphs(
    checkpoint: Checkpoint, graphs: Sequence[Path], ids: Sequence[int], cache_length: int, on_layer: Callable[[], None]
) -> Quality:
    """The quality of `graphs`, those of all chunks in their order, over the positions of `ids`; each chunk's error is that on float32's own states.

    All ids but the last go through in one call, at most `cache_length`: a graph takes as many tokens as its caches have slots. One float32 layer
    or one graph is in memory at a time.

    Raises:
        CheckpointError: the weights cannot be read.
        ExportError: as `load_graph`.
    """
    config, count = checkpoint.config, len(ids) - 1
    layers = config.num_layers // len(graphs)
    rotary = rotary_input(rope_table(config.rope, config.head_dim, count), 0, count)
    float_mask, float_caches = additive_mask(count, count, 0), empty_caches(config, 1, count)
    mask, caches = additive_mask(count, cache_length, 0), empty_caches(config, layers, cache_length)
    right = exported = load_embedding_rows(checkpoint, ids[:-1]).unsqueeze(0)
    errors = []
    for number, path in enumerate(graphs):
        graph = load_graph(path)
        exported = graph(exported, mask, rotary, *caches)[0]
        alone = graph(right, mask, rotary, *caches)[0]
        del graph
        for layer in range(number * layers, (number + 1) * layers):
            chunk = Chunk(config, layer, 1, head=layer == config.num_layers - 1).eval()
            load_weights(chunk, checkpoint)
            right = chunk(right, float_mask, rotary, *float_caches)[0]
            on_layer()
        errors.append(relative_error(alone, right))
    return quality(right[0], exported[0], torch.tensor(ids[1:])).model_copy(update={"chunk_errors": tuple(errors)})
