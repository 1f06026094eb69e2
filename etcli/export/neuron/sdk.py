"""The vendor's packages, or their simulated stand-ins, for a block of a worker's code."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

from etcli.common.errors import ToolError
from etcli.export.simulated_sdk import PACKAGES, is_simulated, simulated_sdk


@contextlib.contextmanager
def sdk(*, simulated: bool) -> Iterator[None]:
    """Within the block `mtk_converter` and `mtk_neuron` can be imported: MediaTek's, or with `simulated` the stand-ins.

    Raises:
        ToolError: `neuron.sdk_missing`, this interpreter has not MediaTek's; `neuron.sdk_already_imported`, it has the other ones in use.
    """
    if simulated:
        with simulated_sdk():
            yield
        return
    if is_simulated():
        raise ToolError(
            "MediaTek's packages were asked for in a process that has imported the simulated ones",
            code="neuron.sdk_already_imported",
            hint="Run the export again: finished chunks are kept.",
        )
    for name in PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ToolError(
                f"MediaTek's package {name} cannot be imported: {error}",
                code="neuron.sdk_missing",
                hint="Install the SDK's wheels into the environment that export.python names; `etcli doctor` tells what is missing.",
            ) from error
    yield
