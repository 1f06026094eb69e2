"""The simulated NeuroPilot SDK, ahead of time: stand-ins for MediaTek's converter and compiler where a recipe says `neuron.sdk: simulator`.

This folder holds the top-level packages `mtk_converter` and `mtk_neuron`, as ExecuTorch's MediaTek backend imports them. It is on `sys.path`
only inside `simulated_sdk()`, which only a worker for such a recipe enters; the vendor's wheels are never shadowed elsewhere. What they
compile is for the simulated NPU (`native/neuron_sim`) and says so: `docs/neuron-simulator.md`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from etcli.common.errors import ToolError

PACKAGES = ("mtk_converter", "mtk_neuron")
"""What the folder holds, by the names of the vendor's wheels."""


def simulated_sdk_path() -> Path:
    """The folder to put on `sys.path`."""
    return Path(__file__).resolve().parent


@contextlib.contextmanager
def simulated_sdk() -> Iterator[None]:
    """Within the block, `mtk_converter` and `mtk_neuron` are the simulated ones, whatever is installed.

    ExecuTorch's MediaTek backend binds the packages when it is imported: a process that entered this once is for the simulator alone.

    Raises:
        ToolError: `neuron.sdk_already_imported`, this process has the vendor's packages already.
    """
    folder = simulated_sdk_path()
    for name in PACKAGES:
        module = sys.modules.get(name)
        if module is not None and not _is_below(getattr(module, "__file__", None), folder):
            raise ToolError(
                f"the simulated {name} was asked for in a process that has imported {getattr(module, '__file__', name)}",
                code="neuron.sdk_already_imported",
                hint="Compile for the simulator in a process of its own; etcli's export does so.",
            )
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def is_simulated() -> bool:
    """Whether this process has imported the simulated packages."""
    return any(_is_below(getattr(sys.modules.get(name), "__file__", None), simulated_sdk_path()) for name in PACKAGES)


def _is_below(file: str | None, folder: Path) -> bool:
    return file is not None and folder in Path(file).resolve().parents
