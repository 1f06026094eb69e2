"""`etcli export`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, recipe_command
from etcli.cli.values import NumberList


@recipe_command("export", short_help="Turn the checkpoint into a bundle of .pte chunks.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Chunks at once; by default as cores and memory allow."
)
@click.option(
    "--only-chunks",
    type=NumberList(),
    metavar="LIST",
    help="Only these chunks, as 0,2-4; they are kept for the next export.",
)
@click.option("--force", is_flag=True, help="Export again even where everything is current.")
@click.option("--no-verify", is_flag=True, help="Do not run the programs here to compare them with PyTorch.")
@click.option(
    "--executor",
    metavar="ADDRESS",
    help="Where chunks are made: local, or dask://HOST:PORT for the workers of a Dask cluster.",
)
@click.option(
    "--evaluate", is_flag=True, help="Measure on a short text what quantising cost: perplexity, agreement, divergence."
)
@click.option(
    "--evaluate-text",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The text to evaluate on, instead of the one that ships with etcli.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and write nothing.")
def command(
    invocation: Invocation,
    jobs: int | None,
    only_chunks: tuple[int, ...] | None,
    force: bool,
    no_verify: bool,
    executor: str | None,
    evaluate: bool,
    evaluate_text: Path | None,
    dry_run: bool,
) -> None:
    """Turn the checkpoint into a bundle: .pte chunks, embedding, rope table, tokenizer and manifest.

    Finished chunks are kept, so an interrupted export goes on where it was.
    """
    from etcli.export.stage import ExportOptions, export
    from etcli.verbs.following import after_export

    options = ExportOptions(
        jobs=jobs,
        only_chunks=only_chunks,
        force=force,
        verify=not no_verify,
        executor=executor,
        dry_run=dry_run,
        evaluate=evaluate or evaluate_text is not None,
        evaluate_text=evaluate_text,
    )
    result = export(invocation.supported, invocation.workspace, options, invocation.console)
    show.exported(invocation.console, result)
    if result.manifest is not None and not result.dry_run:
        show.following(invocation.console, after_export(invocation.loaded, invocation.workspace))
    invocation.finish(result)
