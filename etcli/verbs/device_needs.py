"""What a recipe needs of the device it will run on: room, an NPU, and the NPU's libraries."""

from __future__ import annotations

from collections.abc import Iterable

from etcli.common.errors import DeployError, EtcliError
from etcli.common.needs import Need, missing_needs, needed
from etcli.device.base import Device
from etcli.device.platform import npu_libraries, platform_difference
from etcli.output.units import bytes_text
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.socs import find_soc, told_soc

_LITTLE_SPACE = 1 << 30
"""Free bytes on the device below which not even the default recipe's deployment is sure to fit."""


def device_needs(loaded: LoadedRecipe, device: Device) -> list[Need]:
    """Everything that `loaded` needs of `device`; where it stops answering, that is what is missing."""
    try:
        return [_space(loaded, device), *_npu(loaded, device)]
    except EtcliError as error:
        return missing_needs("device", "where the model runs", error.problems)


def _space(loaded: LoadedRecipe, device: Device) -> Need:
    name, why = "space on the device", "bundle and binaries"
    folder = loaded.recipe.device_dir
    free = device.free_bytes(folder)
    text = f"{bytes_text(free)} free"
    if free >= _LITTLE_SPACE:
        return Need(name, why, "ok", text, folder)
    hint = (
        f"{text} at {folder} on {device.serial}, and a small model takes about {bytes_text(_LITTLE_SPACE)}: free some, "
        "or remove old deployments (etcli clean RECIPE --on-device)."
    )
    return Need(name, why, "warning", text, folder, hint)


def _npu(loaded: LoadedRecipe, device: Device) -> Iterable[Need]:
    """Whether the device has the NPU that the recipe is for, and what its own system has of the NPU's libraries."""
    neuron = loaded.recipe.neuron
    soc = find_soc(neuron.platform) if neuron is not None else None
    if neuron is None or soc is None or neuron.simulated:
        return
    name, why = "NPU", f"the bundle will be for {soc.title}"
    told = told_soc(device.properties())
    difference = platform_difference(soc.id, told, device.serial)
    if difference is not None:
        hint = "Name the device's own platform in neuron.platform, or another device with --serial."
        yield needed(name, why, DeployError.problem(difference, code="deploy.platform", hint=hint))
    else:
        yield Need(name, why, "ok", told.text)
    found = npu_libraries(device)
    text = f"{len(found)} found" if found else "none found (those of the SDK are deployed)"
    yield Need("NPU libraries of the device", "its own system's, beside those of the SDK", "ok", text, ", ".join(found))
