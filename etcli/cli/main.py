"""The console script: finds the verb, runs it, and turns whatever happens into one message and the right exit code.

Verbs are imported only when they are called, so `etcli --help` costs little more than starting Python.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from etcli.cli import failures
from etcli.cli.catalogue import VERBS
from etcli.common.errors import ExitCode
from etcli.common.text import is_text


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of the pipeline."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, or None."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"etcli.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - our own modules
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's; an option that belongs to a verb, written before it, is told where it goes."""
        words = list(args)  # click empties the list
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            owners = [name for name, options in self._options(ctx).items() if error.option_name in options]
            if not owners:
                raise error
            named = [owner for owner in owners if set(owner.split()) <= set(words)]
            verb = (named or owners)[0]
            others = "" if named or len(owners) == 1 else f" (also of {', '.join(owners[1:])})"
            raise click.UsageError(
                f"{error.option_name} is an option of a verb; write it after the verb: etcli {verb} {error.option_name}{others}"
            ) from None

    def _options(self, ctx: click.Context) -> dict[str, set[str]]:
        """The options of every verb and sub-command as they are typed; imports all verbs."""
        found = {}
        for name in VERBS:
            command = self.get_command(ctx, name)
            subs = command.commands if isinstance(command, click.Group) else {}
            for words, one in ((name, command), *((f"{name} {sub}", each) for sub, each in subs.items())):
                found[words] = {option for parameter in (one.params if one else ()) for option in parameter.opts}
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a suggestion for a verb mistyped."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], VERBS, n=1) if args else []
            if close:
                raise click.UsageError(f"no such command {args[0]!r}; did you mean {close[0]!r}?", ctx) from None
            raise error


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"auto_envvar_prefix": "ETCLI", "help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    allow_from_autoenv=False,
    help="Print the version; with --json, every version that matters.",
)
@click.option("--json", "as_json", is_flag=True, allow_from_autoenv=False, help="With --version: one JSON document.")
@click.pass_context
def cli(ctx: click.Context, version: bool, as_json: bool) -> None:
    """From a Llama checkpoint to tokens on an Android phone, from one YAML recipe.

    RECIPE is optional everywhere: a path, or the name of a built-in recipe. Without it: $ETCLI_RECIPE, then ./etcli.yaml, then
    the built-in smollm2-135m.
    """
    if version:
        from etcli.cli.version import print_version

        print_version(as_json=as_json)
        ctx.exit(0)
    if as_json:
        raise click.UsageError("before a verb, --json goes with --version alone; write it after the verb", ctx)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(0)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM and a closed terminal take the same way out as Ctrl-C, so that children end and half-written files go.

    The signal's name tells them from Ctrl-C, which a prompt may take for less than the end.
    """
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run etcli and exit."""
    words = sys.argv[1:] if argv is None else argv
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # under nohup it is ignored, and stays so
        signal.signal(signal.SIGHUP, _terminate)
    _open_streams()
    code: Any = 0
    try:
        _check_words(words)
        code = cli.main(args=words, prog_name="etcli", standalone_mode=False) or 0
        _flush()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except SystemExit as stop:
        # With 1 it is click's and rich's way out when the reader of our output has gone: the verb may have been in the middle of its work.
        code = int(ExitCode.INTERRUPTED) if stop.code == 1 else stop.code
    except BrokenPipeError:
        code = _reader_gone()
    except BaseException as error:
        code = _report(error, words)
    sys.exit(code)


def _report(error: BaseException, words: Sequence[str]) -> int:
    said: int | None = None
    try:
        said = failures.report(error, words)
        _flush()
    except (BrokenPipeError, SystemExit):  # rich's word for it
        _reader_gone()
        # a failure that nobody reads of is one
        return int(min(problem.exit_code for problem in failures.problems_of(error, words))) if said is None else said
    except OSError as refused:
        # an output that refused before refuses what is left in its buffer once more: that has been said
        if not isinstance(error, OSError) or error.errno != refused.errno:
            said = failures.output_refused(refused)
        _reader_gone()
    return int(ExitCode.ENVIRONMENT) if said is None else said


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _open_streams() -> None:
    """Give a caller that closed a standard stream (`>&-`) nothing to trip over, and every encoding a way to show every name."""
    sys.stdin = sys.stdin or Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for the life of the process
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        # What the output's encoding lacks is shown escaped: a message must never fail for a name in it.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _check_words(words: Sequence[str]) -> None:
    """Refuse arguments, and values of our own variables, that are no text: neither a manifest nor a JSON document could name them.

    Raises:
        click.UsageError: naming all of them.
    """
    bad = [word for word in words if not is_text(word)]
    named = [name for name, value in os.environ.items() if name.startswith("ETCLI_") and not is_text(value)]
    if named:
        raise click.UsageError(f"the value of {', '.join(named)} is not valid UTF-8; set it again, or unset it")
    if bad:
        raise click.UsageError(f"not valid UTF-8: {', '.join(map(repr, bad))}; rename the file, or type it again")


def _reader_gone() -> int:
    """Nothing is left to say to a pipe that nobody reads, and nothing must be flushed into it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return 0
