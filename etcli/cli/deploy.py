"""`etcli deploy`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, devices_options, recipe_command, stale_option, target_option


@recipe_command("deploy", short_help="Put bundle and binaries on the device, sending only what differs.")
@target_option
@devices_options
@click.option(
    "--bundle", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A bundle folder from elsewhere."
)
@click.option("--dry-run", is_flag=True, help="Print what would be sent and removed, and why.")
@click.option("--verify", is_flag=True, help="Have the device hash every file, whatever its manifest says.")
@click.option("--force", is_flag=True, help="Take over the folder, and ignore a platform that is not the device's.")
@stale_option
def command(
    invocation: Invocation,
    target: str | None,
    bundle: Path | None,
    dry_run: bool,
    verify: bool,
    force: bool,
    stale_ok: bool,
) -> None:
    """Put the bundle and the binaries of the build that fits on the device, or on several, sending only what differs."""
    from etcli.deploy.stage import DeployOptions, deploy

    options = DeployOptions(
        target=target, bundle=bundle, dry_run=dry_run, verify=verify, force=force, stale_ok=stale_ok
    )
    loaded, workspace = invocation.supported, invocation.workspace
    invocation.require_bundle(bundle, stale_ok=stale_ok)
    results = invocation.on_devices(
        lambda device, console: deploy(loaded, workspace, device, options, console), show.deployed
    )
    invocation.finish_devices(results)
