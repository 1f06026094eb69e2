"""`etcli recipe`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from etcli.cli import show
from etcli.cli.invocation import Invocation, SubCommands, plain_command, recipe_command


@click.group("recipe", cls=SubCommands)
def command() -> None:
    """Built-in recipes, the resolved recipe, the JSON schema, a starter file."""


@plain_command("recipe list")
@click.argument("recipes", nargs=-1, metavar="[RECIPE]...")
def list_command(invocation: Invocation, recipes: tuple[str, ...]) -> None:
    """Each RECIPE, by default every built-in one: whether this version can carry it out, and what it needs that etcli cannot bring."""
    from etcli.recipe.support import list_recipes

    listed = list_recipes(recipes)
    show.recipes(invocation.console, listed)
    invocation.finish({"recipes": listed})


@recipe_command("recipe show")
def show_command(invocation: Invocation) -> None:
    """The resolved recipe: `extends` merged, --set applied, defaults filled in, variables as written."""
    from etcli.recipe.resolved import resolved_document, resolved_text

    loaded = invocation.loaded
    if not invocation.json:
        invocation.console.print(resolved_text(loaded).rstrip("\n"))
    invocation.finish({"path": loaded.path, "recipe": resolved_document(loaded)})


@plain_command("recipe schema")
def schema_command(invocation: Invocation) -> None:
    """The JSON schema of recipes, for editors."""
    from etcli.recipe.jsonschema import json_schema

    schema = json_schema()
    if not invocation.json:
        invocation.console.print(json.dumps(schema, indent=2))
    invocation.finish(schema)


@plain_command("recipe new")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default=Path("etcli.yaml"))
@click.option("--name", help="The recipe's name; by default from the folder.")
@click.option("--source", help="The checkpoint; by default the built-in one.")
@click.option(
    "--ci",
    type=click.Choice(["github", "gitlab"]),
    multiple=True,
    help="Write a job file for this CI system too (repeatable), for PATH as it is where there is one.",
)
def new_command(invocation: Invocation, path: Path, name: str | None, source: str | None, ci: tuple[str, ...]) -> None:
    """Write a commented starter recipe to PATH (etcli.yaml); an existing file is left alone.

    Precision, chunks and cache are chosen by the size of the checkpoint, where --source is on this machine.
    """
    from etcli.verbs.starting import start

    started = start(path, name=name, source=source, ci=ci)
    written = started.new
    show.started(invocation.console, path, started)
    for file in written.ci.files:
        invocation.console.print(f"{file}: runs etcli smoke on {path} and a virtual device; edit it, then commit it")
    for remark in written.ci.remarks:
        invocation.console.print(remark)
    invocation.finish({"path": path, "ci": written.ci.files, "remarks": written.ci.remarks})


for _sub in (list_command, show_command, schema_command, new_command):
    command.add_command(_sub)
