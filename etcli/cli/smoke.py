"""`etcli smoke`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import (
    Invocation,
    binary_option,
    device_options,
    executorch_option,
    ndk_option,
    recipe_command,
    target_option,
)


@recipe_command("smoke", short_help="All four stages, then compare the device's tokens with the eager reference.")
@target_option
@device_options
@ndk_option
@executorch_option
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a JUnit report.")
@click.option("--require-device", is_flag=True, help="Fail (exit 4) where no physical device is connected.")
@binary_option
def command(
    invocation: Invocation,
    target: str | None,
    ndk: Path | None,
    executorch: Path | None,
    junit: Path | None,
    require_device: bool,
    runner_binary: Path | None,
) -> None:
    """Export, build, deploy and run, then compare the device's token ids with the eager reference.

    Stages whose output is current are skipped and said to be; the run and the comparison always happen.
    """
    from etcli.verbs.smoke import SmokeOptions, smoke

    options = SmokeOptions(
        serial=invocation.serial,
        virtual=invocation.virtual,
        target=target,
        junit=junit,
        require_device=require_device,
        runner_binary=runner_binary,
        ndk=ndk,
        executorch=executorch,
    )
    result = smoke(invocation.supported, invocation.workspace, options, invocation.console)
    show.smoked(invocation.console, result)
    invocation.finish(result)
