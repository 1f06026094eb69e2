"""`etcli run`."""

from __future__ import annotations

from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, binary_option, devices_options, recipe_command, stale_option, target_option
from etcli.cli.values import MOST_TOKENS, STDIN, FiniteRange, prompt_text


@recipe_command("run", short_help="Run the Llama runner on the device and stream the answer.")
@target_option
@devices_options
@click.option("--prompt", metavar="TEXT", help="What to ask; by default the recipe's run.prompt.")
@click.option(
    "--prompt-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="A file that holds it, UTF-8; - is standard input.",
)
@click.option(
    "--max-new-tokens", type=click.IntRange(1, MOST_TOKENS), metavar="N", help="Upper bound of generated tokens."
)
@click.option("--no-chat", is_flag=True, help="The prompt as it is, without the model's chat template.")
@click.option("--system", metavar="TEXT", help="The chat's system message; by default the recipe's run.system.")
@click.option("--temperature", type=FiniteRange(0, 1000), metavar="T", help="Draw tokens; 0 is greedy decoding.")
@click.option(
    "--top-p",
    type=FiniteRange(0, 1, min_open=True),
    metavar="P",
    help="Draw among the likeliest that have P together.",
)
@click.option("--seed", type=click.IntRange(0, (1 << 63) - 1), metavar="N", help="Of the drawing.")
@click.option("--interactive", is_flag=True, help="A conversation; what was said before stays in the cache.")
@binary_option
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The bundle folder that was deployed with deploy --bundle.",
)
@click.option("--force", is_flag=True, help="Run although the bundle's platform is not the device's.")
@stale_option
def command(
    invocation: Invocation,
    target: str | None,
    prompt: str | None,
    prompt_file: Path | None,
    max_new_tokens: int | None,
    no_chat: bool,
    system: str | None,
    temperature: float | None,
    top_p: float | None,
    seed: int | None,
    interactive: bool,
    runner_binary: Path | None,
    bundle: Path | None,
    force: bool,
    stale_ok: bool,
) -> None:
    """Run what was deployed: encode the prompt, stream the answer, report tokens, speed and memory.

    With --interactive, questions are asked one after the other: at a terminal, or from standard input, a line each.
    """
    if interactive and invocation.several:
        raise click.UsageError("--interactive talks with one device")
    if interactive and prompt_file == STDIN:
        raise click.UsageError(
            "--interactive reads its questions from standard input itself: leave out --prompt-file -"
        )
    from etcli.run.stage import RunOptions, run

    options = RunOptions(
        prompt=prompt_text(prompt, prompt_file),
        max_new_tokens=max_new_tokens,
        chat=False if no_chat else None,
        system=system,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        runner_binary=runner_binary,
        bundle=bundle,
        target=target,
        stale_ok=stale_ok,
        force=force,
    )
    loaded, workspace = invocation.supported, invocation.workspace
    invocation.require_bundle(bundle, stale_ok=stale_ok)
    if interactive:
        from etcli.run.asking import asking
        from etcli.run.conversation import converse

        source = asking(options.prompt, json=invocation.json)
        invocation.finish(converse(loaded, workspace, invocation.device(), options, source, invocation.console))
        return
    results = invocation.on_devices(lambda device, console: run(loaded, workspace, device, options, console), show.ran)
    invocation.finish_devices(results)
