"""The reference of a bundle for the NPU: its chunks' quantised graphs in eager PyTorch. Runs in the reference's process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.common.errors import UsageError
from etcli.export.neuron.graph_file import load_graph
from etcli.llama.answers import Judgement, judgements
from etcli.llama.caches import empty_caches
from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.llama.weights import load_embedding_rows


@torch.no_grad()
def judge_quantised(
    checkpoint: Checkpoint, graphs: Sequence[Path], prompt: Sequence[int], tokens: Sequence[int], *, cache_length: int
) -> tuple[Judgement, ...]:
    """As `ReferenceDecoder.judge`, through the graphs of all chunks in their order, of which one is in memory at a time.

    Prompt and tokens go through in one call: a graph takes as many tokens as its caches have slots.

    Raises:
        UsageError: they are more than that, or none.
        ExportError: as `load_graph`.
    """
    fed = [*prompt, *tokens[:-1]]
    if not tokens or not prompt or len(fed) > cache_length:
        raise UsageError(
            f"{len(fed)} tokens cannot be judged with a cache of {cache_length}",
            code="reference.prompt",
            hint="Shorten the prompt, or export shapes with a longer cache.",
        )
    config = checkpoint.config
    hidden = load_embedding_rows(checkpoint, fed).unsqueeze(0)
    mask = additive_mask(len(fed), cache_length, 0)
    rotary = rotary_input(rope_table(config.rope, config.head_dim, len(fed)), 0, len(fed))
    caches = empty_caches(config, config.num_layers // len(graphs), cache_length)
    for path in graphs:
        hidden = load_graph(path)(hidden, mask, rotary, *caches)[0]
    return judgements(tokens, hidden[0, -len(tokens) :])
