"""Libraries of MediaTek's that are staged beside programs with the NPU's delegate: opened while one runs, linked with nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from etcli.common.errors import Problems
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.neuropilot import neuropilot
from etcli.tables.targets import Target
from etcli.toolchain.neuropilot import check_library, device_libraries

REASON = "MediaTek's, opened while a program runs"


def vendor_libraries(loaded: LoadedRecipe, target: Target, console: Console) -> tuple[Path, ...]:
    """The SDK's libraries for the phones of `target`, each looked at. None for a target that is no phone's, or without the SDK.

    Raises:
        EtcliError: the SDK that is named is not there (`neuropilot.missing`), or one of them is for no phone, simulated, or of a release that
            cannot be used (`neuropilot.library_*`), exit 3.
    """
    if target.system != "android":
        return ()
    found = device_libraries(loaded)
    names = {library.name: library for library in neuropilot().libraries}
    problems = Problems()
    for path in found:
        library = names[path.name]
        problems.attempt(lambda library=library, path=path: check_library(library, path))  # type: ignore[misc]
    problems.raise_if_any()
    neuron = loaded.recipe.neuron
    absent = [library.name for library in names.values() if library.name not in {path.name for path in found}]
    if loaded.recipe.export.backend == "neuron" and neuron is not None and not neuron.simulated and absent:
        console.note(
            f"not staged, so that a phone has to have its own: {', '.join(absent)} (`etcli doctor` says where they come from)"
        )
    return tuple(found)


def copy_vendor_libraries(libraries: tuple[Path, ...], stage: Path) -> None:
    """Put them into the stage, under their names."""
    for path in libraries:
        shutil.copyfile(path, stage / path.name)
