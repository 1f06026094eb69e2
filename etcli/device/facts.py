"""What a device says of itself, out of its properties."""

from __future__ import annotations

from collections.abc import Mapping

from etcli.manifests.run_record import DeviceFacts
from etcli.tables.socs import told_soc

_UNKNOWN = "unknown"


def parse_properties(listing: str) -> dict[str, str]:
    """The properties in the output of `getprop`, lines of `[name]: [value]`; a value may go on over several lines."""
    found: dict[str, str] = {}
    name = None
    for line in listing.splitlines():
        if line.startswith("[") and "]: [" in line:
            name, _, value = line[1:].partition("]: [")
            found[name] = value
        elif name is not None:
            found[name] += "\n" + line
    return {key: value.removesuffix("]") for key, value in found.items()}


def device_facts(serial: str, properties: Mapping[str, str]) -> DeviceFacts:
    """The facts that records print. A device that leaves Android aside tells its system in `ro.etcli.os`."""

    def first(*names: str) -> str:
        return next((properties[name] for name in names if properties.get(name)), _UNKNOWN)

    android = f"Android {first('ro.build.version.release')}"
    return DeviceFacts(
        serial=serial,
        model=first("ro.product.model", "ro.product.name", "ro.product.device"),
        soc=first("ro.soc.model", "ro.board.platform", "ro.hardware"),
        abi=first("ro.product.cpu.abi"),
        os=properties.get("ro.etcli.os") or android,
        emulated=properties.get("ro.etcli.virtual") == "1",
        soc_properties=dict(told_soc(properties).values),
    )
