"""`etcli inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, plain_command


@plain_command(
    "inspect", short_help="Look into a .pte, a bundle, a build, an ELF file or a checkpoint, or compare two."
)
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option(
    "--build",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Hold operators and delegates against this build (.etcli/NAME/build/TARGET); by default against the runner that etcli builds here.",
)
def command(invocation: Invocation, path: Path, other: Path | None, build: Path | None) -> None:
    """Look into PATH, told by its content: a .pte, a bundle, a build, an ELF file or a checkpoint. Nothing of it is run.

    With OTHER, say how it differs from PATH.
    """
    if other is not None:
        if build is not None:
            raise click.UsageError("--build goes with one PATH")
        from etcli.verbs.differences import inspect_both

        result = inspect_both(path, other)
        show.differences(invocation.console, result)
        invocation.finish(
            {"a": result.a, "b": result.b, "kind": result.kind, "same": result.same, "differences": result.differences}
        )
        return
    from etcli.verbs.inspect import inspect

    found = inspect(path, build)
    show.inspected(invocation.console, found)
    invocation.finish(found)
