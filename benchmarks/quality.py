"""How much of the default model each way of quantising keeps: agreement, divergence and perplexity over the positions of a text.

What precision 8da4w does by default (search for scales, 8-bit head, group 32) was chosen by this table. Ours is what `etcli export` does;
the peer is the same with one thing changed: scales from the largest value of a group, a 4-bit head, larger groups, a float32 head; in the last
row it is another way altogether, the 2-bit weights of demonstration quality that `model.quantize: aqlm` makes. The figure is the share of
positions where the first choice is not that of float32. A bar of 1 says that the default must be at least as close to float32 as that way
is. Deterministic on one machine, so it is run once; on another one rounding alone moves the figure by 0.01 to 0.02.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from harness import Row, arguments, publish
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import fetch
from etcli.export.evaluation import evaluation_text
from etcli.export.job import EmbeddingSettings, PrecisionSettings
from etcli.export.quality import quality
from etcli.export.quantizers.embedding import rounded
from etcli.export.quantizers.int8_channels import Int8Channels
from etcli.export.quantizers.registry import quantise
from etcli.export.source import checkpoint_source
from etcli.llama.chunk import Chunk
from etcli.llama.passes import HeldPasses, Rounding
from etcli.llama.reference import ReferenceDecoder
from etcli.manifests.export_report import Quality
from etcli.ops.aqlm import use_compiled
from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.tokenizer.opening import open_tokenizer

INT8_HEAD = PrecisionSettings(precision="8da4w", group_size=32, head="8da8w")


@dataclass(frozen=True)
class Way:
    """A way to quantise; `bar` as in a row of the printed document, None where the peer may well be better at a price."""

    case: str
    rounding: Rounding
    bar: float | None


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    checkpoint = open_checkpoint(fetch(load("smollm2-135m", []), Console(verbosity=-1)))
    ids = open_tokenizer(checkpoint.path).encode(evaluation_text(None), bos=True)
    ids = ids[:64] if flags.quick else ids
    right = _logits(checkpoint, ids, None)
    ours = _measured(checkpoint, ids, right, Rounding(functools.partial(_in, INT8_HEAD), _same))
    rows = [_row(way.case, way.bar, ours, _measured(checkpoint, ids, right, way.rounding)) for way in _ways()]
    if not flags.quick:  # quantising takes minutes, unless it has been done before
        rows.append(_row("model.quantize: aqlm", None, ours, _of_demonstration(ids, right)))
    return publish("quality", rows, as_json=flags.json)


def _ways() -> Iterator[Way]:
    yield Way("scales of the largest value", Rounding(_affine, _same), 1.0)
    for case, bar, changed in (
        ("4-bit head", 1.0, {"head": "8da4w"}),
        ("float32 head", None, {"head": "fp32"}),
        ("group 64", 1.0, {"group_size": 64}),
        ("8-bit head on fp32", None, {"precision": "fp32", "group_size": None}),
        ("fp16", None, {"precision": "fp16", "head": "fp16", "group_size": None}),
    ):
        yield Way(case, Rounding(functools.partial(_in, INT8_HEAD.model_copy(update=changed)), _same), bar)
    for dtype in ("int8", "int4"):
        embedding = EmbeddingSettings.model_validate({"dtype": dtype, "group_size": 32})
        yield Way(f"embedding {dtype}", Rounding(_keep, functools.partial(rounded, settings=embedding)), None)


def _in(settings: PrecisionSettings, chunk: Chunk) -> None:
    quantise(chunk, settings)


def _affine(chunk: Chunk) -> None:
    """The default but for the choice of scales, which is torchao's own default."""
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4,  # type: ignore[attr-defined]
        weight_granularity=PerGroup(32),
    )
    quantize_(chunk, config, filter_fn=lambda module, name: isinstance(module, nn.Linear) and name != "lm_head")
    if chunk.lm_head is not None:
        Int8Channels().quantise(chunk.lm_head, None)


def _keep(chunk: Chunk) -> None:
    """Float32 as it is."""


def _same(rows: torch.Tensor) -> torch.Tensor:
    return rows


def _logits(checkpoint: Checkpoint, ids: list[int], rounding: Rounding | None) -> torch.Tensor:
    return ReferenceDecoder(checkpoint, HeldPasses(checkpoint, rounding)).logits(ids[:-1], rows=len(ids) - 1)


def _measured(checkpoint: Checkpoint, ids: list[int], right: torch.Tensor, rounding: Rounding) -> Quality:
    return quality(right, _logits(checkpoint, ids, rounding), torch.tensor(ids[1:]))


def _of_demonstration(ids: list[int], right: torch.Tensor) -> Quality:
    """What the weights of the recipe smollm2-135m-aqlm keep of the default model, with the head in float32."""
    console = Console(verbosity=-1)
    use_compiled(console)
    quantised = open_checkpoint(checkpoint_source(load("smollm2-135m-aqlm", []), console))
    return quality(right, _logits(quantised, ids, None), torch.tensor(ids[1:]))


def _row(case: str, bar: float | None, ours: Quality, peer: Quality) -> Row:
    lost, lost_there = 1 - ours.top1_agreement, 1 - peer.top1_agreement
    ratio = lost_there / lost
    print(f"{case}: {peer}", file=sys.stderr, flush=True)  # minutes may pass between two rows
    note = "; ".join(
        f"{name}: agreement {found.top1_agreement:.3f}, KL {found.mean_kl:.4f}, perplexity {found.perplexity:.2f}"
        for name, found in (("default", ours), ("this", peer))
    )
    note += f"; float32: perplexity {ours.perplexity_float:.2f}; {ours.positions} positions"
    return Row(
        case,
        lost,
        lost_there,
        "share",
        ratio,
        bar,
        None if bar is None else ratio >= bar,
        note,
    )


if __name__ == "__main__":
    sys.exit(main())
