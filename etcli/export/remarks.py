"""What an export says of its checkpoint, tokenizer and recipe: remarks that stop nothing."""

from __future__ import annotations

from etcli.checkpoint.base import Checkpoint
from etcli.export.assembly import stop_sources
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import Quality, quality_remarks
from etcli.output.console import Console
from etcli.output.units import counted
from etcli.recipe.fit import (
    padded_vocabulary_remark,
    vocabulary_warning,
)
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.remarks import say_fit
from etcli.tokenizer.base import Tokenizer


def say_remarks(
    loaded: LoadedRecipe, checkpoint: Checkpoint, tokenizer: Tokenizer, model: ModelConfig, console: Console
) -> None:
    """Say what a user should know of this export before the long work: what is left unused, doubted, padded, and where stop ids come from."""
    if checkpoint.unused:
        names = ", ".join(checkpoint.unused[:3]) + (", ..." if len(checkpoint.unused) > 3 else "")
        console.warn(
            f"etcli leaves {counted(len(checkpoint.unused), 'tensor')} of the checkpoint unused: {names}",
            code="export.unused_tensors",
        )
    say_fit(loaded, model, (info.dtype for info in checkpoint.tensors.values()), console)
    for remark in checkpoint.remarks:
        console.warn(remark, code="checkpoint.remark")
    say_quality(loaded, checkpoint.quality, console)
    for remark in tokenizer.remarks:
        console.warn(remark, code="tokenizer.remark")
    doubt = vocabulary_warning(model, tokenizer.vocab_size)
    if doubt is not None:
        console.warn(doubt, code="tokenizer.small")
    padding = padded_vocabulary_remark(model, tokenizer.vocab_size)
    if padding is not None:
        console.detail(f"    {padding}")
    for stop, sources in stop_sources(model, tokenizer).items():
        console.detail(f"    stop id {stop}: {', '.join(sources)}")


def say_quality(loaded: LoadedRecipe, quality: Quality | None, console: Console) -> None:
    """Say what quantised weights that came so are good for."""
    if loaded.recipe.model.quantize is None:  # else it has been said
        for remark in quality_remarks(quality):
            console.warn(remark, code="checkpoint.remark")
