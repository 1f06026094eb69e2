"""SIMULATED: stands in for MediaTek's compiler. What it compiles runs on the simulated NPU alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etcli.export.simulated_sdk._blob import BlobError, Network, extract_shared, read_blob, write_blob

from ._crash import crash_when_told
from ._options import CompileError, read_options

if TYPE_CHECKING:
    from etcli.export.simulated_sdk.mtk_converter._converted import Converted

__version__ = "0+simulated"
SHARING = "-e union"
"""What `extract_shared_data` can do: take out the constants of all networks, each of them once."""

__all__ = ["CompileError", "compile", "extract_shared_data"]


def compile(mlir: str, options: str) -> bytes:
    """A network for the simulated NPU, in the form that `etcli.export.simulated_sdk._blob` describes.

    Args:
        mlir: what the simulated converter gave; it carries its network with it.
        options: as on a command line, separated by blanks.

    Raises:
        CompileError: an option is wrong (see `read_options`), or `mlir` is not from the simulated converter.
    """
    read = read_options(options)
    converted: Converted | None = getattr(mlir, "converted", None)
    if converted is None:
        raise CompileError(
            "simulated compiler: this is not what the simulated converter gives, and nothing else can be compiled"
        )
    crash_when_told(mlir)
    return write_blob(
        Network(
            platform=read.platform,
            options=read.words,
            inputs=converted.inputs,
            outputs=converted.outputs,
            program=converted.program,
            constants=converted.constants,
        )
    )


def extract_shared_data(models: Sequence[bytes], options: str = "") -> tuple[bytes, list[bytes]]:
    """The constants of all `models` in one file, each of them once, and the models without, in their order.

    Raises:
        CompileError: `options` are others than `-e union`, or a model is not from `compile`, or for another platform than the first.
    """
    if options.split() != SHARING.split():
        raise CompileError(f"simulated compiler: sharing weights takes the options {SHARING!r}, not {options!r}")
    models = list(models)
    if not models:
        raise CompileError("simulated compiler: there are no models to take weights from")
    try:
        platforms = {_platform(model): None for model in models}
        if len(platforms) > 1:
            raise CompileError(f"simulated compiler: models for {' and '.join(platforms)} cannot share weights")
        return extract_shared(models)
    except BlobError as error:
        raise CompileError(f"simulated compiler: a model cannot share its weights: {error}") from None


def _platform(model: Any) -> str:
    if not isinstance(model, bytes | bytearray | memoryview):
        raise CompileError(f"simulated compiler: a model is bytes, not {type(model).__name__}")
    return read_blob(model).platform
