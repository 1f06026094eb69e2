"""`etcli inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, plain_command


@plain_command("inspect", short_help="Look into a .pte, a bundle, a build, an ELF file or a checkpoint.")
@click.argument("path", type=click.Path(path_type=Path))
def command(invocation: Invocation, path: Path) -> None:
    """Look into PATH, told by its content: a .pte, a bundle, a build, an ELF file or a checkpoint. Nothing of it is run."""
    from etcli.verbs.inspect import inspect

    result = inspect(path)
    show.inspected(invocation.console, result)
    invocation.finish(result)
