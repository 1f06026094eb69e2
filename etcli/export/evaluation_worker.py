"""The evaluation's process: `python -m etcli.export.evaluation_worker JOB.json`, started by `export/evaluation.py`.

Events: `layer` after each layer, `note` (`text`). One layer is in memory at a time: the text goes through its float32 weights, then through what quantising
made of them, on three ways: in float32 throughout, as exported throughout, and as exported from each chunk's start on alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etcli.export.isolated import Send, isolated_main
from etcli.export.job import EmbeddingSettings, PrecisionSettings

if TYPE_CHECKING:
    from etcli.checkpoint.base import Checkpoint
    from etcli.llama.passes import Rounding
    from etcli.manifests.export_report import Quality


def work(job: dict[str, Any], send: Send) -> Mapping[str, Any]:
    """Predict every id of the job's `ids` but the first, in float32 and as exported, and compare.

    Raises:
        CheckpointError: the checkpoint cannot be opened or read.
        ExportError: a weight that the precision cannot hold, or as `compared_graphs`.
    """
    from etcli.export.reference_worker import rounding_of, use_compiled_operators, use_physical_cores

    use_physical_cores()
    checkpoint = _opened(job["checkpoint"])
    if job["graphs"]:
        from etcli.export.neuron.evaluation import compared_graphs

        graphs = [Path(path) for path in job["graphs"]]
        found = compared_graphs(checkpoint, graphs, job["ids"], job["cache_length"], lambda: send({"event": "layer"}))
        return {"quality": found.model_dump()}
    original = None if job["original"] is None else _opened(job["original"])
    use_compiled_operators(checkpoint, send)
    rounding = rounding_of(
        PrecisionSettings.model_validate(job["precision"]), EmbeddingSettings.model_validate(job["embedding"])
    )
    found = compared(checkpoint, rounding, job["ids"], job["layers"], send, original=original)
    return {"quality": found.model_dump()}


def _opened(place: Mapping[str, str | None]) -> Checkpoint:
    from etcli.checkpoint.opening import open_checkpoint

    path, adapter = place["path"], place["adapter"]
    assert path is not None  # noqa: S101 - for the type checker
    return open_checkpoint(Path(path), None if adapter is None else Path(adapter))


def compared(
    checkpoint: Checkpoint,
    rounding: Rounding | None,
    ids: list[int],
    layers: int,
    send: Send,
    *,
    original: Checkpoint | None = None,
) -> Quality:
    """The quality over the positions of `ids`, with the error of each chunk of `layers` layers on the float32 network's own states.

    Args:
        checkpoint: what is exported, with `rounding`.
        original: the float32 network, where that is another checkpoint than the one that is exported.
    """
    import torch

    from etcli.export.quality import quality, relative_error
    from etcli.llama.caches import empty_caches
    from etcli.llama.chunk import Chunk
    from etcli.llama.mask import additive_mask
    from etcli.llama.rope import rope_table, rotary_input
    from etcli.llama.weights import load_embedding_rows, load_weights

    config, fed = checkpoint.config, ids[:-1]
    count = len(fed)
    mask = additive_mask(count, count, 0)
    rotary = rotary_input(rope_table(config.rope, config.head_dim, count), 0, count)
    caches = empty_caches(config, 1, count)
    errors = []

    def loaded(source: Checkpoint, layer: int) -> Chunk:
        chunk = Chunk(source.config, layer, 1, head=layer == config.num_layers - 1).eval()
        load_weights(chunk, source)
        return chunk

    with torch.inference_mode():
        right = load_embedding_rows(original or checkpoint, fed)
        exported = right if original is None else load_embedding_rows(checkpoint, fed)
        exported = (exported if rounding is None else rounding.rows(exported)).unsqueeze(0)
        right = alone = right.unsqueeze(0)
        for layer in range(config.num_layers):
            if layer % layers == 0:
                alone = right
            if original is not None:
                right = loaded(original, layer)(right, mask, rotary, *caches)[0]
            chunk = loaded(checkpoint, layer)
            if original is None:
                right = chunk(right, mask, rotary, *caches)[0]
            if rounding is not None:
                rounding.quantise(chunk)
            exported = chunk(exported, mask, rotary, *caches)[0]
            alone = chunk(alone, mask, rotary, *caches)[0]
            if (layer + 1) % layers == 0:
                errors.append(relative_error(alone, right))
            send({"event": "layer"})
    return quality(right[0], exported[0], torch.tensor(ids[1:])).model_copy(update={"chunk_errors": tuple(errors)})


if __name__ == "__main__":
    sys.exit(isolated_main(work, sys.argv))
