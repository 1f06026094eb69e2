"""Whether the compiler takes the flags of the user's own operator libraries: tried on one line of C++, before anything is fetched or configured."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.build.android import AndroidSettings
from etcli.common.errors import Problem, RecipeError
from etcli.common.process import run
from etcli.tables.op_yaml import DESCRIPTION, key_line
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain.compilers import Compiler

_SECONDS = 60.0


def check_flags(libraries: Sequence[OperatorLibrary], compiler: Compiler, android: AndroidSettings | None) -> None:
    """Try what each library of the user's own compiles with; all its flags at once, and one by one where those are refused.

    Raises:
        RecipeError: code `operators.flags`: each flag that the compiler does not take, at its line of `op.yaml`.
    """
    own = [library for library in libraries if library.own]
    if not own:
        return
    with tempfile.TemporaryDirectory(prefix="etcli-flags.") as folder:
        source = Path(folder) / "one_line.cpp"
        source.write_text("int one_line;\n", encoding="utf-8")
        trial = _Trial(compiler, compiler.triple + str(android.api_level) if android is not None else None, source)
        problems = [problem for library in own for problem in _problems(library, trial)]
    if problems:
        raise RecipeError.many(problems)


@dataclass(frozen=True)
class _Trial:
    """`target` is what a compiler for several targets, as an NDK's, is told to compile for."""

    compiler: Compiler
    target: str | None
    source: Path

    def refusal(self, flags: Sequence[str]) -> str | None:
        """What the compiler says against `flags` together, a line; None where it takes them."""
        target = [f"--target={self.target}"] if self.target is not None else []
        words = [*target, *flags, "-c", str(self.source), "-o", str(self.source.with_suffix(".o"))]
        try:
            done = run([self.compiler.path, *words], env={"LC_ALL": "C"}, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it does not end within {_SECONDS:.0f} seconds"
        if done.ok:
            return None
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return next((line for line in said if "error" in line or "nknown" in line), said[0] if said else "it fails")


def _problems(library: OperatorLibrary, trial: _Trial) -> Iterator[Problem]:
    refused_by_all = yield from _refused(library, trial, "flags", library.flags, ())
    if refused_by_all:
        return  # each source of an architecture has them too
    for flags in library.special(trial.compiler.triple).values():
        yield from _refused(library, trial, "architectures", flags, library.flags)


def _refused(
    library: OperatorLibrary, trial: _Trial, key: str, flags: Sequence[str], common: Sequence[str]
) -> Generator[Problem, None, bool]:
    """A problem for each of `flags`, which stand under `key`, that the compiler does not take; where it takes each alone, one for all.

    Gives whether there is any."""
    together = trial.refusal([*common, *flags]) if flags else None
    if together is None:
        return False
    alone = [(flag, why) for flag in dict.fromkeys(flags) if (why := trial.refusal([flag])) is not None]
    for flag, why in alone or [(" ".join((*common, *flags)), together)]:
        path = library.root / DESCRIPTION
        yield RecipeError.problem(
            f"{library.name}: {trial.compiler.path} ({trial.compiler.kind} {trial.compiler.version}"
            f"{f' for {trial.target}' if trial.target else ''}) does not take {flag}: {why}",
            code="operators.flags",
            hint=f"Remove it from {key}, or write what this compiler calls it.",
            file=path,
            line=_line(path, key, flag),
        )
    return True


def _line(path: Path, key: str, flag: str) -> int | None:
    """The line, from 1, that `flag` stands in, at or below that of its key; else the key's."""
    start = key_line(path, key)
    lines = path.read_text(encoding="utf-8").splitlines()
    whole = re.compile(rf"(?<![\w-]){re.escape(flag)}(?![\w=.+-])")
    return next(
        (number for number, line in enumerate(lines, 1) if number >= (start or 1) and whole.search(line)), start
    )
