"""`etcli doctor`."""

from __future__ import annotations

from etcli.cli import show
from etcli.cli.invocation import Invocation, device_options, recipe_command, target_option


@recipe_command("doctor", short_help="Show what this recipe needs on this machine and device, and how to get it.")
@target_option
@device_options
def command(invocation: Invocation, target: str | None) -> None:
    """Show everything this recipe needs on this machine and device: present with its version, or how to get it."""
    from etcli.verbs.doctor import doctor

    device = invocation.device if invocation.device_chosen else None
    result = doctor(invocation.loaded, target, device, invocation.console)
    show.needs(invocation.console, result)
    result.raise_if_missing()
    invocation.finish(result)
