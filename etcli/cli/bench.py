"""`etcli bench`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, binary_option, device_options, recipe_command, stale_option, target_option


@recipe_command("bench", short_help="Measure prefill and decode speed, load time and peak memory.")
@target_option
@device_options
@click.option(
    "--runs",
    type=click.IntRange(min=1, max=1000),
    metavar="N",
    default=5,
    show_default=True,
    help="Counted runs, after one warm-up.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=2),
    metavar="N",
    default=32,
    show_default=True,
    help="Tokens a run, stop ids ignored.",
)
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The bundle folder that was deployed with deploy --bundle.",
)
@binary_option
@stale_option
def command(
    invocation: Invocation,
    target: str | None,
    runs: int,
    max_new_tokens: int,
    bundle: Path | None,
    runner_binary: Path | None,
    stale_ok: bool,
) -> None:
    """Measure what was deployed: prefill and decode rates, time to first token, load time and peak memory."""
    from etcli.verbs.bench import BenchOptions, bench

    options = BenchOptions(
        runs=runs,
        max_new_tokens=max_new_tokens,
        target=target,
        bundle=bundle,
        runner_binary=runner_binary,
        stale_ok=stale_ok,
    )
    loaded, workspace = invocation.supported, invocation.workspace
    result = bench(loaded, workspace, invocation.device(), options, invocation.console)
    show.measured(invocation.console, result)
    invocation.finish(result)
