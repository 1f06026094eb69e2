"""`etcli validate`."""

from __future__ import annotations

from etcli.cli.invocation import Invocation, recipe_command


@recipe_command("validate", short_help="Check recipe and checkpoint from headers alone; report every problem at once.")
def command(invocation: Invocation) -> None:
    """Check recipe and checkpoint from headers alone.

    Every problem at once, each with file, line and remedy. No tensor is read and nothing is downloaded.
    """
    from etcli.verbs.validate import validate

    result = validate(invocation.loaded, invocation.console)
    invocation.console.print(f"{result.recipe}: {result.summary}")
    invocation.finish(result)
