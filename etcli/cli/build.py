"""`etcli build`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import (
    Invocation,
    device_options,
    executorch_option,
    ndk_option,
    recipe_command,
    target_option,
)


@recipe_command("build", short_help="Render and compile the runner for a target, and audit the result.")
@target_option
@device_options
@ndk_option
@executorch_option
@click.option("--configure-only", is_flag=True, help="Render and configure; compile nothing.")
@click.option("--clean", is_flag=True, help="Build from nothing.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Compiler processes at once; by default one a core."
)
@click.option(
    "--library", is_flag=True, help="Make the runner a shared library for apps too, with a C and a Java interface."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
def command(
    invocation: Invocation,
    target: str | None,
    ndk: Path | None,
    executorch: Path | None,
    configure_only: bool,
    clean: bool,
    jobs: int | None,
    library: bool,
    dry_run: bool,
) -> None:
    """Render a CMake project for a target, build it and audit every binary of it.

    Without --target: the recipe's build.target, or the target that fits the device named with --serial or --device, or host.
    """
    from etcli.build.stage import BuildOptions, build
    from etcli.verbs.following import after_build
    from etcli.verbs.targets import build_target

    chosen = build_target(invocation.supported, target, invocation.device if invocation.device_chosen else None)
    options = BuildOptions(
        target=chosen,
        configure_only=configure_only,
        clean=clean,
        jobs=jobs,
        dry_run=dry_run,
        library=library,
        ndk=ndk,
        executorch=executorch,
    )
    result = build(invocation.supported, invocation.workspace, options, invocation.console)
    show.built(invocation.console, result)
    if result.manifest is not None and not dry_run:
        target, serial, virtual = result.manifest.target, invocation.serial, invocation.virtual
        line = after_build(invocation.loaded, invocation.workspace, target, serial=serial, virtual=virtual)
        show.following(invocation.console, line)
    invocation.finish(result)
