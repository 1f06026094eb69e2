"""Whatever a verb raised, as messages on stderr or one JSON document, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from etcli.cli.catalogue import VERBS
from etcli.common.errors import EtcliError, ExitCode, Problem, StaleError, ToolError
from etcli.common.text import shown
from etcli.common.workspace import cache_dir


def report(error: BaseException, words: Sequence[str]) -> int:
    """Show `error` the way the command line asked for (`--json`, `-v`), and return the process's exit code."""
    if isinstance(error, click.exceptions.Abort) and isinstance(error.__cause__, KeyboardInterrupt):
        error = error.__cause__  # click's own word for Ctrl-C hides the exception that bears what the verb had to say
    problems = problems_of(error, words)
    code = int(min(problem.exit_code for problem in problems))
    document_asked = as_document(error, words)
    if not document_asked or (isinstance(error, OSError) and error.filename is None):
        # what refused may be stdout itself, where nobody would read the document
        for problem in problems:
            show(problem)
        if isinstance(error, StaleError) and getattr(error, "etcli_default", False):
            # a person in the wrong folder would otherwise follow the hints for another model
            from etcli.recipe.builtin import DEFAULT
            from etcli.recipe.lookup import LOCAL_FILE

            print(
                f"       No RECIPE was given and there is no {LOCAL_FILE} here: this is about the built-in {DEFAULT}.",
                file=sys.stderr,
            )
    if document_asked:
        from etcli.output.document import document

        # the console of the verb, if it got that far, holds the warnings that came before the failure
        warnings = getattr(error, "etcli_warnings", ())
        print(
            document(
                command_name(words),
                exit_code=code,
                result=getattr(error, "etcli_result", None),
                warnings=warnings,
                problems=problems,
            )
        )
    if code == ExitCode.FAULT and any(word in ("-v", "-vv", "--verbose") for word in words):
        traceback.print_exception(error)
    return code


def as_document(error: BaseException, words: Sequence[str]) -> bool:
    """Whether the command line asked for a JSON document: as the verb understood it, if it got that far."""
    understood: bool | None = getattr(error, "etcli_json", None)
    return _json_asked(words) if understood is None else understood


def show(problem: Problem) -> None:
    """One problem on stderr: what, where, what to do."""
    colour = sys.stderr.isatty() and not _plain()
    head = "\033[1;31merror:\033[0m" if colour else "error:"
    place = "" if problem.file is None or _names_itself(problem) else f"{problem.place}: "
    print(f"{head} {shown(place + problem.message)}", file=sys.stderr)
    if problem.hint:
        print("\n".join(f"       {shown(line)}" for line in problem.hint.splitlines()), file=sys.stderr)


def _names_itself(problem: Problem) -> bool:
    """Whether the message says the file already, so that it is not said twice; with a line number it always is."""
    path = str(problem.file)
    if problem.line is not None:
        return False
    if problem.message.startswith(f"{path} "):
        return True
    # a bare word may be any word of the sentence
    return (
        any(mark in path for mark in "/.")
        and re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", problem.message) is not None
    )


def problems_of(error: BaseException, words: Sequence[str]) -> tuple[Problem, ...]:
    """`error` as problems. An exception that nobody expected becomes a fault of ours, with a crash file."""
    if isinstance(error, EtcliError):
        return error.problems
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return (Problem("interrupted", "interrupted", exit_code=ExitCode.INTERRUPTED),)
    if isinstance(error, click.ClickException):
        hint = None
        context = getattr(error, "ctx", None)
        if context is not None:
            hint = f"Try: {context.command_path} --help"
        return (Problem("usage", error.format_message(), hint=hint, exit_code=ExitCode.USAGE),)
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        return (_refusal(error),)
    if isinstance(error, MemoryError):
        hint = "Close other programs, or use a machine with more memory."
        return (ToolError.problem("memory ran out", code="machine.memory", hint=hint),)
    crash = _write_crash(error, words)
    hint = f"The details are in {crash}; please report them." if crash else "Run it again with -v for the details."
    return (Problem("internal", f"a fault in etcli: {type(error).__name__}: {error}", hint=hint),)


_ELSEWHERE = "or name another place: --workspace, ETCLI_CACHE_DIR."
_FILES = "Raise the limit of open files (ulimit -n), or close other programs."
_REFUSALS = {
    errno.ENOSPC: f"Free some space there, {_ELSEWHERE}",
    errno.EDQUOT: f"Free some space there, {_ELSEWHERE}",
    errno.EFBIG: f"Raise the limit of file sizes (ulimit -f), {_ELSEWHERE}",
    errno.EROFS: f"Make it writable, {_ELSEWHERE}",
    errno.EACCES: f"See to its permissions, {_ELSEWHERE}",
    errno.EPERM: f"See to its permissions, {_ELSEWHERE}",
    errno.ENOTDIR: f"A file stands where a folder should: remove it, {_ELSEWHERE}",
    errno.EISDIR: f"A folder stands where a file should: remove it, {_ELSEWHERE}",
    errno.EEXIST: f"Something stands in the way: remove it, {_ELSEWHERE}",
    errno.ENAMETOOLONG: "Name a shorter path.",
    errno.ELOOP: "A link there leads to itself: remove it.",
    errno.EIO: "The disk fails, or is gone: look into the system's log.",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: "Close other programs, or use a machine with more memory.",
}
"""What the system refuses for reasons of the machine, by errno, and what to do. Nothing of it is a fault of etcli's."""


def _refusal(error: OSError) -> Problem:
    place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else None
    what = "a file or folder cannot be used" if place else "a file or the output cannot be written"
    message, hint = f"{what}: {error.strerror or error}", _REFUSALS[error.errno or 0]
    return ToolError.problem(message, code="files.refused", hint=hint, file=place)


def output_refused(error: OSError) -> int:
    """Say on stderr that what was to be printed could not be, as a full disk behind `> file` does; the exit code."""
    problem = Problem(
        "output.unwritable",
        f"the output cannot be written: {error.strerror or error}",
        hint=_REFUSALS.get(error.errno or 0),
    )
    with contextlib.suppress(OSError):
        show(problem)
    return int(ExitCode.ENVIRONMENT)


def _json_asked(words: Sequence[str]) -> bool:
    """Whether a command line that could not be read to its end asks for JSON, itself or by its environment variable."""
    name = f"ETCLI_{command_name(words).replace(' ', '_').upper()}_JSON"
    return "--json" in words or os.environ.get(name, "").lower() in ("1", "true", "t", "yes", "y", "on")


def command_name(words: Sequence[str]) -> str:
    """The verb (and sub-command) that `words` call, for the JSON document."""
    names = [word for word in words if not word.startswith("-")]
    if not names or names[0] not in VERBS:
        return ""
    return " ".join(names[:2]) if names[0] in ("device", "bundle", "recipe") and len(names) > 1 else names[0]


def _write_crash(error: BaseException, words: Sequence[str]) -> Path | None:
    path = cache_dir() / "crashes" / f"etcli-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(traceback.format_exception(error))
        path.write_text(
            f"etcli {' '.join(words)}\n{sys.version}\n\n{text}", encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        return None
    return path


def _plain() -> bool:
    return bool(os.environ.get("NO_COLOR") or os.environ.get("CI"))
