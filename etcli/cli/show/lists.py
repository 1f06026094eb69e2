"""What there is and what is lacking, as people read it: needs, recipes, devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etcli.output.console import Console
from etcli.output.units import bytes_text, counted

if TYPE_CHECKING:
    from pathlib import Path

    from etcli.recipe.support import ListedRecipe
    from etcli.verbs.devices import DeviceInfo, ListedDevice
    from etcli.verbs.doctor import Diagnosis
    from etcli.verbs.starting import Started
    from etcli.verbs.support_archive import SupportArchive


def needs(console: Console, result: Diagnosis) -> None:
    """Each need, what was found, and how to get what is missing."""
    console.print(f"{result.recipe} for {result.target}", style="italic")
    width = max(len(need.status) for need in result.needs)
    for need in result.needs:
        # a list and not a table: paths and messages are long, and people copy them
        console.print(f"{need.status:<{width}}  {need.name}{f': {need.version}' if need.version else ''}  ({need.why})")
        if need.where:
            console.print(f"{'':<{width}}  {need.where}", style="dim")
    for need in result.needs:
        if need.hint and need.status == "fetched later":
            console.print(f"{need.name}: {need.hint}")
    if result.missing:
        count = len(result.missing)
        console.print(f"{counted(count, 'thing')} {'is' if count == 1 else 'are'} missing", style="bold red")
    else:
        console.print("nothing is missing", style="green")


def started(console: Console, path: Path, result: Started) -> None:
    """What to do with a starter, and what its export was chosen by."""
    if not result.new.starter:
        return
    console.print(f"{path}: edit it, then run: etcli validate {path}")
    if result.export is not None:
        console.note(f"precision {result.export.precision}: {result.export.why}")
    if result.unread:
        console.note(
            "the checkpoint could not be looked at, so this is written for a small one; "
            "for half a billion parameters and more see: etcli recipe show llama3.2-1b-8da4w"
        )


def following(console: Console, command: str) -> None:
    """What to type next. It is no result, and no matter of a script's."""
    if not console.json:
        console.note(f"next: {command}")


def archived(console: Console, written: SupportArchive) -> None:
    """What is in a support archive: whoever sends it on should know."""
    rows = [(name, bytes_text(size)) for name, size in written.members.items()]
    console.table(f"Support archive {written.path}", ("member", "size"), rows)
    console.note("look through it before you send it on; README.txt in it says what was left out")


def recipes(console: Console, listed: Sequence[ListedRecipe]) -> None:
    """Recipes, those that this version refuses marked with the reason."""
    console.table(
        "Recipes",
        ("name", "summary", "supported"),
        [
            (item.name, item.summary, "yes" if item.supported else f"not yet: {', '.join(item.refused)}")
            for item in listed
        ],
    )
    for item in listed:
        for need in item.needs:
            console.print(f"{item.name} needs: {need}")


def devices(console: Console, listed: Sequence[ListedDevice]) -> None:
    """Every device and its state."""
    if not listed:
        console.print("no device; connect a phone, or: etcli device start")
        return
    # the ABI is left to `device info`, so that names stay whole in 80 columns
    rows = [(item.serial or "-", item.name or "-", item.state, item.model, item.soc) for item in listed]
    console.table("Devices", ("serial", "name", "state", "model", "SoC"), rows, names=2)


def device(console: Console, info: DeviceInfo) -> None:
    """One device in detail."""
    facts = info.facts
    console.table(
        facts.serial,
        ("what", "value"),
        [
            ("model", facts.model),
            ("SoC", ", ".join(f"{value} ({name})" for name, value in facts.soc_properties.items()) or facts.soc),
            ("NPU platform", info.platform or "none that is supported"),
            ("NPU libraries", ", ".join(info.npu_libraries) or "none"),
            ("ABIs", ", ".join(info.abis)),
            ("system", facts.os),
            ("emulated", "yes" if facts.emulated else "no"),
            ("memory", f"{bytes_text(info.memory_available_bytes)} available of {bytes_text(info.memory_total_bytes)}"),
            ("/data/local/tmp", f"{bytes_text(info.free_bytes)} free of {bytes_text(info.storage_bytes)}"),
            *(
                (f"deployed in {held.folder}", bytes_text(held.bytes) if held.bytes is not None else "size not told")
                for held in info.deployments
            ),
            ("temperature", _heat(info)),
            ("adb protocol", info.protocol),
            ("targets", ", ".join(info.targets) or "none"),
        ],
    )


def _heat(info: DeviceInfo) -> str:
    """The warmest sensors first."""
    told = sorted(info.sensors.temperatures_c.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name} {celsius:.1f} °C" for name, celsius in told[:4])
    clocks = info.sensors.clocks_mhz
    if clocks:
        text += f"{', ' if text else ''}cores at {min(clocks):.0f} to {max(clocks):.0f} MHz"
    return text or "not told"
