"""`etcli bench`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, binary_option, devices_options, recipe_command, stale_option, target_option
from etcli.cli.values import MOST_TOKENS, FiniteRange, MinRatio

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@recipe_command(
    "bench", short_help="Measure prefill and decode speed, load time, memory and heat; compare two reports."
)
@target_option
@devices_options
@click.option(
    "--runs",
    type=click.IntRange(min=1, max=1000),
    metavar="N",
    default=5,
    show_default=True,
    help="Counted runs.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(min=0, max=1000),
    metavar="N",
    default=1,
    show_default=True,
    help="Runs before those, not counted; memory over time is watched in the first of them.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(2, MOST_TOKENS),
    metavar="N",
    default=32,
    show_default=True,
    help="Tokens a run, stop ids ignored.",
)
@click.option("--prompt", metavar="TEXT", help="Another prompt than the recipe's.")
@click.option(
    "--pause",
    type=FiniteRange(min=0, max=3600),
    metavar="SECONDS",
    default=0.0,
    show_default=True,
    help="Rest between two runs, for a device that gets warm.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="A page with plots too: one file that opens offline.",
)
@click.option(
    "--compare",
    type=(_FILE, _FILE),
    metavar="A.json B.json",
    help="Measure nothing; compare two documents of bench --json. Ratios above 1 mean that B is better.",
)
@click.option(
    "--min-ratio",
    type=MinRatio(),
    multiple=True,
    metavar="[FIGURE=]R",
    help="With --compare: end with exit 11 where a figure's ratio is below R by more than the spread of the runs explains (repeatable).",
)
@click.option(
    "--unlike-ok",
    is_flag=True,
    help="With --min-ratio: judge also reports of different devices, recipes or prompts.",
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
    warm_up: int,
    max_new_tokens: int,
    prompt: str | None,
    pause: float,
    html: Path | None,
    compare: tuple[Path, Path] | None,
    min_ratio: tuple[tuple[str | None, float], ...],
    unlike_ok: bool,
    bundle: Path | None,
    runner_binary: Path | None,
    stale_ok: bool,
) -> None:
    """Measure what was deployed: prefill and decode rates, time to first token and of each token and chunk, load time, memory, heat."""
    from etcli.verbs.bench import BenchOptions, bench, compare_files, judge, prepare_page, write_page

    if compare is not None:
        _refuse_beside_compare()
        comparison = compare_files(*compare)
        if html is not None:
            write_page(html, [report for pair in comparison.pairs for report in (pair.a, pair.b)], comparison.pairs)
        show.compared(invocation.console, comparison)
        if not min_ratio:
            _refuse_typed("unlike_ok", because="without --min-ratio: nothing is judged")
        else:
            comparison = judge(comparison, dict(min_ratio), unlike_ok=unlike_ok)
            invocation.console.print("passed: no figure is worse than it may be", style="bold green")
        invocation.finish(comparison)
        return
    _refuse_typed("min_ratio", "unlike_ok", because="without --compare: nothing is judged")
    options = BenchOptions(
        runs=runs,
        warm_up=warm_up,
        max_new_tokens=max_new_tokens,
        pause_s=pause,
        prompt=prompt,
        target=target,
        bundle=bundle,
        runner_binary=runner_binary,
        stale_ok=stale_ok,
    )
    loaded, workspace = invocation.supported, invocation.workspace
    invocation.require_bundle(bundle, stale_ok=stale_ok)
    if html is not None:
        prepare_page(html)
    results = invocation.on_devices(
        lambda device, console: bench(loaded, workspace, device, options, console), show.measured
    )
    if html is not None:
        write_page(html, results)
    if html is not None:
        invocation.console.note(f"page: {html}")
    invocation.finish_devices(results)


def _refuse_typed(*names: str, because: str) -> None:
    """Options that mean nothing here are a misunderstanding where they were typed; a CI job may have them in its environment for all its steps."""
    context = click.get_current_context()
    typed = [
        f"--{name.replace('_', '-')}"
        for name in names
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if typed:
        raise click.UsageError(f"{' and '.join(typed)} {because}")


def _refuse_beside_compare() -> None:
    """An option of the measuring beside `--compare` is a misunderstanding."""
    context = click.get_current_context()
    told = click.core.ParameterSource.COMMANDLINE
    other = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in ("compare", "min_ratio", "unlike_ok", "html", "json", "verbose", "quiet")
        and context.get_parameter_source(parameter.name or "") is told
    ]
    if other:
        raise click.UsageError(f"--compare measures nothing; leave out {', '.join(other)}")
