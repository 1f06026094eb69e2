"""`etcli device`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, SubCommands, device_options, plain_command
from etcli.cli.values import ByteCount

if TYPE_CHECKING:
    from etcli.device.virtual.spec import Protocol


@click.group("device", cls=SubCommands)
def command() -> None:
    """List, show, start and stop devices; `start` and `stop` manage virtual ones."""


@plain_command("device list")
def list_command(invocation: Invocation) -> None:
    """Every device that adb knows, and every virtual one of ours with its name."""
    from etcli.verbs.devices import list_devices

    result = list_devices(invocation.console)
    show.devices(invocation.console, result.devices)
    invocation.finish(result)


@plain_command("device info")
@device_options
def info_command(invocation: Invocation) -> None:
    """The device's facts: model, SoC, ABIs, system, storage and memory, and the targets that fit it."""
    from etcli.device.select import compare_adb_versions
    from etcli.verbs.devices import device_info

    result = device_info(invocation.device())
    compare_adb_versions(invocation.console)
    show.device(invocation.console, result)
    invocation.finish(result)


@plain_command("device start")
@click.option(
    "--arch", type=click.Choice(["aarch64", "x86_64"]), default="aarch64", show_default=True, help="Its processor."
)
@click.option("--set-prop", multiple=True, metavar="K=V", help="A property of the device (repeatable).")
@click.option(
    "--protocol",
    type=click.Choice(["new", "old"]),
    default="new",
    show_default=True,
    help="That of its adb daemon: as since Android 7, or as before.",
)
@click.option(
    "--data-limit",
    type=ByteCount(),
    help="Room on its /data, such as 64MB; its files then last only until it stops. By default what this machine has.",
)
def start_command(
    invocation: Invocation, arch: str, set_prop: tuple[str, ...], protocol: Protocol, data_limit: int | None
) -> None:
    """Start a virtual device, or find it running, and connect adb to it."""
    from etcli.device.program import adb_command
    from etcli.verbs.devices import start_virtual

    result = start_virtual(arch, set_prop, invocation.console, protocol=protocol, data_limit=data_limit)
    invocation.console.print(f"{result.serial}  virtual {result.arch} ({adb_command()} -s {result.serial} shell)")
    invocation.finish(result)


@plain_command("device stop")
@click.argument("which", nargs=-1, metavar="[NAME|SERIAL]...")
@click.option("-s", "--serial", multiple=True, metavar="SERIAL", help="The same as SERIAL alone.")
@click.option("--device", metavar="virtual[:aarch64|x86_64]", help="The one that --device means for other verbs.")
@click.option("--arch", type=click.Choice(["aarch64", "x86_64"]), help="The same by its processor.")
def stop_command(invocation: Invocation, which: tuple[str, ...], arch: str | None) -> None:
    """Stop the virtual devices named as `device list` shows them, by default every one, and all programs on them.

    Their files stay for the next start, but those of one that was started with --data-limit.
    """
    from etcli.verbs.devices import stop_virtual

    wanted = [*which, *invocation.serials]
    if invocation.virtual is not None:
        wanted.append(invocation.virtual)
    if arch is not None:
        wanted.append(f"virtual:{arch}")
    stopped = stop_virtual(wanted, invocation.console)
    nothing = f"not running: {', '.join(wanted)}" if wanted else "no virtual device was running"
    invocation.console.print(f"stopped: {', '.join(stopped)}" if stopped else nothing)
    invocation.finish({"stopped": stopped})


for _sub in (list_command, info_command, start_command, stop_command):
    command.add_command(_sub)
