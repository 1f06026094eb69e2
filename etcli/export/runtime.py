"""ExecuTorch's Python runtime without the exporter around it.

`executorch.runtime` imports all of `executorch.exir`, four seconds of work for one class of warnings; the compiled module itself needs
torch's libraries alone. It gives memory to outputs that a program leaves unplanned (`setup_output_storage` in
`extension/pybindings/pybindings.cpp`), so the very file that goes to the device is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch


def run_method(path: Path, method: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Load one method of the program in `path`, run it once, and let go of it.

    A program keeps each method that it loaded, with a backend's packed weights: one program a call holds one set.
    """
    from executorch.extension.pybindings import _C

    program = _C._load_program(str(path), enable_etdump=False, debug_buffer_size=0)
    outputs = program.load_method(method)(list(inputs))
    return [output.clone() for output in outputs]
