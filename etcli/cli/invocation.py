"""What every verb shares: the common options, and the object that carries their values to the verb.

No option has a parameter of another name than its flag: click makes the name of its environment variable (`ETCLI_EXPORT_JSON`) from that.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from etcli.output.console import Console
from etcli.output.document import document

if TYPE_CHECKING:
    from etcli.common.workspace import Workspace
    from etcli.device.adb import AdbDevice
    from etcli.device.base import Device
    from etcli.recipe.loaded import LoadedRecipe

Verb = Callable[..., Any]
_WORKERS = frozenset({"export", "build", "deploy", "run", "smoke", "bench", "bundle pack"})
"""Verbs that read or write a workspace while they work: `clean` waits for them."""

R = TypeVar("R")


class SubCommands(click.Group):
    """A verb of several commands: alone it shows its help, whose lines are whole sentences, wrapped and never cut."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without arguments, the help as a result; click takes it for a usage error."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of sub-commands."""
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@dataclass
class Invocation:
    """One call of a verb. `serial` and `virtual` are set only for verbs that mean a device, `serials` and `all` for those that take several."""

    command: str
    console: Console
    json: bool
    recipe: str | None = None
    sets: tuple[str, ...] = ()
    workspace_root: Path = Path(".etcli")
    serial: str | None = None
    virtual: str | None = None
    serials: tuple[str, ...] = ()
    all: bool = False
    takes_recipe: bool = False
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @functools.cached_property
    def loaded(self) -> LoadedRecipe:
        """The recipe, read and checked.

        Raises:
            RecipeError: with every problem of it.
        """
        from etcli.recipe.loader import load

        return load(self.recipe, self.sets)

    @property
    def means_default(self) -> bool:
        """Whether the verb is about the built-in default recipe because none was named and none is here."""
        from etcli.recipe.lookup import means_default

        return self.takes_recipe and means_default(self.recipe)

    @functools.cached_property
    def supported(self) -> LoadedRecipe:
        """The recipe, refused where it asks for something the product does not support yet."""
        from etcli.common.errors import RecipeError
        from etcli.recipe.support import unsupported

        problems = unsupported(self.loaded)
        if problems:
            raise RecipeError.many(problems)
        return self.loaded

    @functools.cached_property
    def workspace(self) -> Workspace:
        """The recipe's folders; where the verb works in them, no other etcli cleans them before the call ends."""
        from etcli.common.text import is_line
        from etcli.common.workspace import Workspace, in_use

        root = str(self.workspace_root.absolute())
        if not is_line(root):
            raise click.UsageError(
                f"a workspace cannot be in {root!r}: manifests and build files hold UTF-8 without control characters only"
            )
        workspace = Workspace(self.workspace_root.absolute(), self.loaded.recipe.name)
        if self.command in _WORKERS:
            self.held.enter_context(in_use(workspace, self.console.note))
        return workspace

    def require_bundle(self, folder: Path | None, *, stale_ok: bool) -> None:
        """Refuse a missing or outdated bundle (`folder`, or the workspace's) before a device is looked for or started.

        Raises:
            StaleError: as the verb itself. What `stale_ok` makes a warning of is for the verb to say.
        """
        from etcli.recipe.outdated import require_bundle

        if not stale_ok:
            folder = folder or self.workspace.bundle
            require_bundle(self.supported, self.workspace, folder, stale_ok=False, console=self.console)

    @property
    def device_chosen(self) -> bool:
        """Whether the user named a device."""
        return bool(self.serial or self.virtual)

    def device(self) -> AdbDevice:
        """The device that is meant, connected.

        Raises:
            DeviceError: none, several, or one that cannot be used.
        """
        from etcli.device.select import select_device

        return select_device(serial=self.serial, virtual=self.virtual, console=self.console)

    @property
    def several(self) -> bool:
        """Whether the user asked for several devices, so that results stand in a list; --all does, however many there are."""
        return self.all or len(set(self.serials)) > 1

    def on_devices(self, work: Callable[[Device, Console], R], show: Callable[[Console, R], None]) -> list[R]:
        """What `work` gives for every device that is meant; several work in parallel, each with a console that names it.

        Args:
            show: shows a person what one gave; called for those that are done also where others fail.

        Raises:
            EtcliError: some failed; the problems of all.
        """
        from etcli.device.select import select_devices
        from etcli.device.several import on_each

        devices = select_devices(serials=self.serials, virtual=self.virtual, every=self.all, console=self.console)
        try:
            results = on_each(devices, work, self.console)
        except BaseException as error:
            for result in getattr(error, "etcli_done", ()):
                show(self.console, result)
            raise
        for result in results:
            show(self.console, result)
        return results

    def finish_devices(self, results: Sequence[Any]) -> None:
        """Print the results' JSON document, where it was asked for: one result as it is, several under `devices`."""
        self.finish({"devices": list(results)} if self.several else results[0])

    def finish(self, result: Any) -> None:
        """Print the result's JSON document, where it was asked for."""
        if self.json:
            print(document(self.command, exit_code=0, result=result, warnings=self.console.warnings))


def _output_options(function: Verb) -> Verb:
    for option in reversed(
        (
            click.option(
                "--json", is_flag=True, help="One JSON document on stdout; notes and streamed text on stderr."
            ),
            click.option("-v", "--verbose", count=True, help="More detail."),
            click.option("-q", "--quiet", is_flag=True, help="Results and errors only."),
        )
    ):
        function = option(function)
    return function


def _call(name: str, function: Verb, values: dict[str, Any]) -> Any:
    as_json = values.pop("json")
    verbosity = -1 if values.pop("quiet") else values.pop("verbose", 0)
    values.pop("verbose", None)
    invocation = Invocation(name, Console(json=as_json, verbosity=verbosity), as_json)
    if "recipe" in values:
        invocation.takes_recipe = True
        invocation.recipe = values.pop("recipe")
        invocation.sets = values.pop("set")
        invocation.workspace_root = values.pop("workspace")
    if "serial" in values:
        serial = values.pop("serial")
        invocation.serials = serial if isinstance(serial, tuple) else (serial,) if serial else ()
        invocation.serial = next(iter(invocation.serials), None)
        invocation.virtual = values.pop("device")
        invocation.all = values.pop("all", False)
        if invocation.all and (invocation.serial or invocation.virtual):
            raise click.UsageError("--all goes with neither --serial nor --device")
        if invocation.serial and invocation.virtual:
            raise click.UsageError("--serial and --device virtual exclude each other")
    try:
        with invocation.held:
            return function(invocation, **values)
    except BaseException as error:
        error.etcli_warnings = tuple(invocation.console.warnings)  # type: ignore[attr-defined]
        error.etcli_json = as_json  # type: ignore[attr-defined]
        error.etcli_default = invocation.means_default  # type: ignore[attr-defined]
        raise


def plain_command(name: str, *, short_help: str | None = None) -> Callable[[Verb], click.Command]:
    """A command without a recipe; `name` as typed, with a space for a sub-command."""

    def decorate(function: Verb) -> click.Command:
        @functools.wraps(function)
        def wrapper(**values: Any) -> Any:
            return _call(name, function, values)

        return click.command(name.split()[-1], short_help=short_help)(_output_options(wrapper))

    return decorate


def recipe_command(name: str, *, short_help: str | None = None) -> Callable[[Verb], click.Command]:
    """A command with a RECIPE argument, `--set` and `--workspace`."""
    prefix = "ETCLI_" + name.upper().replace(" ", "_")

    def decorate(function: Verb) -> click.Command:
        @functools.wraps(function)
        def wrapper(**values: Any) -> Any:
            return _call(name, function, values)

        wrapped = _output_options(wrapper)
        for option in (
            click.option(
                "--workspace",
                type=click.Path(file_okay=False, path_type=Path),
                default=Path(".etcli"),
                show_default=True,
                envvar=[f"{prefix}_WORKSPACE", "ETCLI_WORKSPACE"],
                help="Where the stages leave their folders.",
            ),
            click.option(
                "--set",
                multiple=True,
                metavar="KEY.SUB=VALUE",
                help="Change a recipe value (repeatable).",
            ),
            click.argument("recipe", required=False, envvar="ETCLI_RECIPE"),
        ):
            wrapped = option(wrapped)
        return click.command(name.split()[-1], short_help=short_help)(wrapped)

    return decorate


def device_options(function: Verb) -> Verb:
    """`-s/--serial` and `--device virtual[:ARCH]`."""
    function = click.option(
        "--device",
        metavar="virtual[:aarch64|x86_64]",
        help="A virtual device, started if needed.",
    )(function)
    return click.option(
        "-s", "--serial", metavar="SERIAL", help="The device's adb serial (ANDROID_SERIAL is honoured)."
    )(function)


def devices_options(function: Verb) -> Verb:
    """`-s/--serial`, repeatable, `--all` and `--device virtual[:ARCH]`."""
    function = click.option(
        "--device",
        metavar="virtual[:aarch64|x86_64]",
        help="A virtual device, started if needed.",
    )(function)
    function = click.option("--all", is_flag=True, help="Every device that is connected and usable, in parallel.")(
        function
    )
    return click.option(
        "-s",
        "--serial",
        multiple=True,
        metavar="SERIAL",
        help="The device's adb serial (repeatable: several work in parallel; ANDROID_SERIAL is honoured).",
    )(function)


def target_option(function: Verb) -> Verb:
    """`--target`."""
    return click.option("--target", metavar="TARGET", help="host, linux-aarch64 or android.")(function)


def binary_option(function: Verb) -> Verb:
    """`--runner-binary`."""
    return click.option(
        "--runner-binary",
        metavar="PATH",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A runner of your own in place of the deployed one.",
    )(function)


def ndk_option(function: Verb) -> Verb:
    """`--ndk`."""
    return click.option(
        "--ndk",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="PATH",
        help="Android NDK, before the recipe's and the environment's.",
    )(function)


def executorch_option(function: Verb) -> Verb:
    """`--executorch`."""
    return click.option(
        "--executorch",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="PATH",
        help="A checkout or installation of ExecuTorch, before the recipe's and the environment's.",
    )(function)


def stale_option(function: Verb) -> Verb:
    """`--stale-ok`."""
    return click.option("--stale-ok", is_flag=True, help="Use an outdated bundle or build, with a warning.")(function)
