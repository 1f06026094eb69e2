"""`etcli doctor`."""

from __future__ import annotations

from pathlib import Path

from etcli.cli import show
from etcli.cli.invocation import (
    Invocation,
    device_options,
    executorch_option,
    ndk_option,
    recipe_command,
    target_option,
)


@recipe_command("doctor", short_help="Show what this recipe needs on this machine and device, and how to get it.")
@target_option
@device_options
@ndk_option
@executorch_option
def command(invocation: Invocation, target: str | None, ndk: Path | None, executorch: Path | None) -> None:
    """Show everything this recipe needs on this machine and device: present with its version, or how to get it."""
    from etcli.verbs.doctor import doctor

    device = invocation.device if invocation.device_chosen else None
    result = doctor(invocation.loaded, target, device, invocation.console, ndk, executorch)
    show.needs(invocation.console, result)
    result.raise_if_missing()
    invocation.finish(result)
