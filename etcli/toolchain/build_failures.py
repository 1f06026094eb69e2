"""What a failed CMake or compiler run said, cut down to the first real errors, with the remedy where it is a known one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.tables.build_errors import explain_build
from etcli.tables.known_errors import explain_text

_SHOWN = 6
_CMAKE_ERROR = re.compile(r"CMake Error\b")
_CMAKE_END = re.compile(r"-- |Call Stack|CMake (?:Error|Warning|Deprecation)")
_COMPILER = re.compile(
    r"(?::\s(?:fatal )?error:\s)|undefined reference to|cannot find -l|\bld(?:\.\w+)?: |multiple definition of"
    r"|No space left on device|Killed|internal compiler error|^ninja: error:|virtual memory exhausted"
)
_TELLING = re.compile(f"{_COMPILER.pattern}|(?i:error|not found|cannot|undefined|No such file)")
_NOISE = re.compile(r": warning: |collect2: error: ld returned|^ninja: build stopped|[Ii]n function `")


def configure_errors(log: Sequence[str]) -> list[str]:
    """The first CMake error of a configure log: its place and its message, joined and without blank lines."""
    for index, line in enumerate(log):
        if _CMAKE_ERROR.search(line):
            block = [line.strip()]
            for more in log[index + 1 :]:
                if _CMAKE_END.match(more):
                    break
                if more.strip():
                    block.append(more.strip())
            return block[:_SHOWN]
    return [line.strip() for line in log if line.strip()][-3:]


def compile_errors(log: Sequence[str]) -> list[str]:
    """The first lines of a build log that name an error, each once, in order; its last lines where none does."""
    found = dict.fromkeys(line.strip() for line in log if _COMPILER.search(line) and not _NOISE.search(line))
    return list(found)[:_SHOWN] or [line.strip() for line in log if line.strip()][-3:]


_PLACE = re.compile(
    r"(?P<file>/[^:]+):(?P<line>\d+)(?::(?P<column>\d+))?:\s+(?P<kind>(?:fatal )?error|required from)\b:?\s*(?P<text>.*)"
)
_LINKED = re.compile(r"(?:multiple definition of|undefined reference to) .+")
_OPENMP = re.compile(r"undefined reference to `(omp_|GOMP_|__kmpc_)")
_EXECUTORCH = re.compile(r"undefined reference to `(executorch|torch::executor)::")
_INCLUDED = re.compile(r"(?:In file included from|\s+from) (?P<file>/[^:]+):(?P<line>\d+)")


@dataclass(frozen=True)
class SourceError:
    """The first error of one folder's sources: its place, what the compiler said, and the further errors of the same folder."""

    file: Path
    line: int
    column: int | None
    message: str
    more: tuple[str, ...]


def first_error_in(log: Sequence[str], folder: Path) -> SourceError | None:
    """The first error in a source below `folder`, or in a header that such a source includes or whose template it uses; None without one.

    An error inside a header of others is shown at the line of the source that led there.
    """
    found: list[tuple[Path, int, int | None, str]] = []
    led: tuple[Path, int, int | None] | None = None
    for line in log:
        if line.startswith(("FAILED:", "[")):
            led = None
        place = _PLACE.match(line) or _INCLUDED.match(line)
        if place is None:
            continue
        groups = place.groupdict()
        here = Path(groups["file"]), int(groups["line"]), int(groups["column"]) if groups.get("column") else None
        inside = here[0].is_relative_to(folder)
        if groups.get("kind") in ("error", "fatal error"):
            if inside:
                found.append((*here, groups["text"]))
            elif led is not None:
                found.append((*led, f"{groups['text']} (in {here[0]}:{here[1]})"))
            led = None
        elif inside:
            led = here
    if not found:
        return None
    unique = list(dict.fromkeys(found))
    file, number, column, message = unique[0]
    more = tuple(f"{path}:{at}: {text}" for path, at, _, text in unique[1:_SHOWN])
    return SourceError(file, number, column, message, more)


def link_errors_in(log: Sequence[str], archive: str | None = None) -> list[str]:
    """What the linker said of all objects, or of those in a static library, each once: symbols that are nowhere, or in two places."""
    found: dict[str, None] = {}
    inside = archive is None
    for line in log:
        if archive is not None and (".a(" in line or ".o: " in line):
            inside = f"{archive}(" in line
        if inside and (match := _LINKED.search(line)):
            found[match[0].strip()] = None
    return list(found)[:_SHOWN]


def link_remedy(errors: Sequence[str], description: Path) -> str:
    """What to do about errors of `link_errors_in` in an operator library of the user's own, which `description` describes."""
    if any(line.startswith("multiple") for line in errors):
        return "Functions of two libraries have one name: make them static, or put them into an unnamed namespace."
    if any(_OPENMP.search(line) for line in errors):
        return (
            f"OpenMP's functions are there with openmp: true in {description} and build.openmp: static in the recipe, and not in Python: "
            "put their calls under #ifdef ETCLI_OPENMP."
        )
    if any(_EXECUTORCH.search(line) for line in errors):
        return f"Name the part of ExecuTorch that has it under components: of {description}."
    return f"List the source that has it under sources: of {description}, or define it."


def remedy(errors: Sequence[str]) -> str | None:
    """What the first known message among the lines means and what to do about it, or None."""
    known = explain_build(errors)
    if known is not None:
        return f"{known.cause[:1].upper()}{known.cause[1:]}. {known.remedy}"
    return next(iter(explain_text("\n".join(errors))), None)


@dataclass(frozen=True)
class Failure:
    """A failed run of CMake in words: `message` has what is known of its cause before the log's own lines, `hint` what to do."""

    message: str
    hint: str


def failure(what: str, lines: Sequence[str], errors: Sequence[str]) -> Failure:
    """The failure `what` ("the runner does not compile") whose log is `lines`, of which `errors` are shown.

    A known message is looked for in all that the log says of errors, since the first line often is not the telling one.
    """
    shown = "".join(f"\n    {line}" for line in errors)
    start = next((index for index, line in enumerate(lines) if _CMAKE_ERROR.search(line)), None)
    said = list(lines[start:]) if start is not None else [line for line in lines if _TELLING.search(line)]
    known = explain_build([*errors, *said])
    if known is not None:
        return Failure(f"{what}: {known.cause}:{shown}", known.remedy)
    return Failure(f"{what}:{shown}", next(iter(explain_text("\n".join(errors))), None) or "See the whole log.")
