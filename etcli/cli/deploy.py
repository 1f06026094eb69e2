"""`etcli deploy`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, device_options, recipe_command, stale_option, target_option


@recipe_command("deploy", short_help="Put bundle and binaries on the device, sending only what differs.")
@target_option
@device_options
@click.option(
    "--bundle", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A bundle folder from elsewhere."
)
@click.option("--dry-run", is_flag=True, help="Print what would be sent and removed.")
@click.option("--force", is_flag=True, help="Take over the folder, and ignore a platform that is not the device's.")
@stale_option
def command(
    invocation: Invocation, target: str | None, bundle: Path | None, dry_run: bool, force: bool, stale_ok: bool
) -> None:
    """Put the bundle and the binaries of the build that fits on the device, sending only what differs."""
    from etcli.deploy.stage import DeployOptions, deploy

    options = DeployOptions(target=target, bundle=bundle, dry_run=dry_run, force=force, stale_ok=stale_ok)
    loaded, workspace = invocation.supported, invocation.workspace
    result = deploy(loaded, workspace, invocation.device(), options, invocation.console)
    show.deployed(invocation.console, result)
    invocation.finish(result)
