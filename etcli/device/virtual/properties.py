"""The properties a virtual device has unless told otherwise: those of a phone that the stages and users ask for."""

from __future__ import annotations

import contextlib
import platform

from etcli.device.virtual.spec import VirtualSpec


def properties(spec: VirtualSpec) -> dict[str, str]:
    """All properties of the device, sorted by name. `ro.etcli.virtual=1` cannot be set away: rates from it say nothing of a phone."""
    model = f"etcli virtual {spec.arch}"
    found = {
        "ro.product.manufacturer": "etcli",
        "ro.product.brand": "etcli",
        "ro.product.name": f"etcli_virtual_{spec.arch}",
        "ro.product.device": f"etcli_virtual_{spec.arch}",
        "ro.product.model": model,
        "ro.product.cpu.abi": spec.target.abi,
        "ro.product.cpu.abilist": spec.target.abi,
        "ro.product.cpu.abilist64": spec.target.abi,
        "ro.soc.manufacturer": "etcli",
        "ro.soc.model": f"virtual-{spec.arch}",
        "ro.board.platform": "virtual",
        "ro.hardware": "virtual",
        "ro.build.version.release": _release(),
        "ro.build.type": "userdebug",
        "ro.serialno": spec.name,
        "ro.etcli.os": f"Linux {platform.release()}",
        "ro.etcli.emulator": _emulator(spec),
        "sys.boot_completed": "1",
        **spec.props,
        "ro.etcli.virtual": "1",
    }
    return dict(sorted(found.items()))


def _release() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("VERSION_ID", "0")
    return "0"


def _emulator(spec: VirtualSpec) -> str:
    emulator = spec.target.emulator
    if emulator is None or platform.machine() == spec.arch:
        return "none"
    return f"{emulator.program} -cpu {spec.cpu or emulator.cpu}"
