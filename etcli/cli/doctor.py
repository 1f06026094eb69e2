"""`etcli doctor`."""

from __future__ import annotations

import dataclasses
import functools
import os
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


@recipe_command("doctor", short_help="Show what this recipe needs on this machine and device, and how to get it.")
@target_option
@device_options
@ndk_option
@executorch_option
@click.option(
    "--deep",
    is_flag=True,
    help="Load PyTorch, ExecuTorch and the operator libraries too, in other processes: a minute.",
)
@click.option(
    "--archive",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write a zip for a report of a problem: versions, manifests, ends of logs; without secrets, prompts and answers.",
)
def command(
    invocation: Invocation,
    target: str | None,
    ndk: Path | None,
    executorch: Path | None,
    deep: bool,
    archive: Path | None,
) -> None:
    """Show everything this recipe needs on this machine and device: present with its version, or how to get it."""
    from etcli.verbs.doctor import doctor

    named = invocation.device_chosen or bool(os.environ.get("ANDROID_SERIAL"))
    device = functools.cache(invocation.device) if named else None
    result = doctor(invocation.loaded, target, device, invocation.console, ndk, executorch, deep=deep)
    show.needs(invocation.console, result)
    if archive is not None:
        from etcli.cli.version import versions
        from etcli.verbs.support_archive import write_support_archive

        properties = device().properties() if device is not None and result.device is not None else None
        written = write_support_archive(
            archive, invocation.loaded, invocation.workspace, result, versions(), properties=properties
        )
        result = dataclasses.replace(result, archive=archive)
        show.archived(invocation.console, written)
    result.raise_if_missing()
    invocation.finish(result)
