"""`etcli clean`."""

from __future__ import annotations

import click

from etcli.cli.invocation import Invocation, device_options, recipe_command


@recipe_command("clean", short_help="Remove what a recipe left in the workspace, or on the device.")
@device_options
@click.option("--on-device", is_flag=True, help="Remove the deployment on the device instead.")
def command(invocation: Invocation, on_device: bool) -> None:
    """Remove what this recipe left in the workspace, or with --on-device its deployment there.

    What model.quantize made for it in the cache goes with the workspace.

    Nothing else is touched: files that others put beside etcli's (such as a CMakeUserPresets.json) stay, and are named.
    """
    from etcli.verbs.clean import clean_device, clean_quantised, clean_workspace

    if on_device:
        result = clean_device(invocation.loaded, invocation.device(), invocation.console)
    else:
        cleaned = clean_workspace(invocation.workspace, invocation.console)
        result = clean_quantised(invocation.loaded, cleaned, invocation.console)
    invocation.console.print(f"removed {result.files} files from {result.place}")
    if result.quantised is not None:
        invocation.console.print(f"removed {result.quantised_files} files from {result.quantised}")
    for path in result.kept:
        invocation.console.print(f"kept {path}: etcli did not make it")
    invocation.finish(result)
