"""`etcli bundle`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli.invocation import Invocation, SubCommands, plain_command, recipe_command, stale_option
from etcli.output.units import bytes_text, counted


@click.group("bundle", cls=SubCommands)
def command() -> None:
    """A bundle as one archive to carry to another machine, and its hashes checked."""


@recipe_command("bundle pack")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The archive; by default NAME.bundle.zip."
)
@click.option("--force", is_flag=True, help="Replace an archive that is there already.")
@stale_option
def pack_command(invocation: Invocation, output: Path | None, force: bool, stale_ok: bool) -> None:
    """Pack the recipe's bundle into one zip archive, after checking that it fits the recipe and its hashes are right."""
    from etcli.recipe.outdated import require_bundle
    from etcli.verbs.archive import pack

    loaded, workspace, console = invocation.loaded, invocation.workspace, invocation.console
    require_bundle(loaded, workspace, workspace.bundle, stale_ok=stale_ok, console=console)
    result = pack(workspace.bundle, output, loaded.recipe.name, console, force=force)
    invocation.console.print(f"{result.archive}  {bytes_text(result.size)}, {counted(result.files, 'file')}")
    invocation.finish(result)


@plain_command("bundle unpack")
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def unpack_command(invocation: Invocation, archive: Path, folder: Path) -> None:
    """Unpack ARCHIVE into the new FOLDER; members stay inside it, and every hash is checked."""
    from etcli.verbs.archive import unpack

    result = unpack(archive, folder, invocation.console)
    invocation.console.print(f"{folder}  {counted(result.files, 'file')}, every hash right")
    invocation.finish(result)


@plain_command("bundle verify")
@click.argument("bundle", type=click.Path(path_type=Path))
def verify_command(invocation: Invocation, bundle: Path) -> None:
    """Check every file of BUNDLE, a folder or a packed one, against its manifest."""
    from etcli.verbs.archive import verify
    from etcli.verbs.packed import verify_packed

    result = (verify_packed if bundle.is_file() else verify)(bundle, invocation.console)
    invocation.console.print(f"{bundle}  {counted(result.files, 'file')}, every hash right")
    invocation.finish(result)


for _sub in (pack_command, unpack_command, verify_command):
    command.add_command(_sub)
