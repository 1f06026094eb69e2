"""Cycles of a look-up on a Neoverse V2, as `llvm-mca` reckons them from the one-token kernel for NEON.

A library. Nothing here runs on AArch64: the cross compiler makes assembly, of which the loop that looks up most is taken.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from etcli.common.assets import asset_dir
from etcli.tables.targets import load_targets
from etcli.toolchain.compilers import verify
from etcli.toolchain.programs import answer, on_path, version_in

OLDEST = 16
"""Older releases do not know `neoverse-v2`: they reckon with another processor and say so in a warning only."""
_NEWEST = 30
_ITERATIONS = 200
_LABEL = re.compile(r"(\.L\w+):")
_BRANCH = re.compile(r"\s+(?:b\.?\w*|cbn?z|tbn?z)\s.*?(\.L\w+)\s*(?://.*)?$")
_LOOK_UP = re.compile(r"\s+ldr\s+s\d+, *\[x\d+, *[xw]\d+, *(?:lsl|uxtw) *#?2\]")


def inner_loops(assembly: str) -> Iterator[list[str]]:
    """The instructions of each loop that has no other label in it, as GCC and Clang write assembly for AArch64."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        branch = _BRANCH.match(line)
        if branch is None or branch[1] not in labels:
            continue
        body = lines[labels[branch[1]] + 1 : number + 1]
        if not any(map(_LABEL.match, body)):
            yield [text for text in body if re.match(r"\s+[a-z]", text)]


def look_ups(loop: list[str]) -> int:
    """Loads of one float or whole number from a place that a register gives: those from tables."""
    return sum(_LOOK_UP.match(line) is not None for line in loop)


def widest_loop(assembly: str) -> list[str]:
    """The loop that looks up most; of several, one that takes eight codes out of a word, the last of them from bit 56.

    Raises:
        ValueError: nothing is looked up.
    """
    loops = [loop for loop in inner_loops(assembly) if look_ups(loop)]
    if not loops:
        raise ValueError("no loop of the assembly looks anything up")
    return max(loops, key=lambda loop: (look_ups(loop), any(re.search(r", *#?56\b", line) for line in loop)))


def total_cycles(report: str) -> int:
    """From what `llvm-mca` prints.

    Raises:
        ValueError: it is not a report.
    """
    found = re.search(r"^Total Cycles:\s+(\d+)$", report, re.MULTILINE)
    if found is None:
        raise ValueError(f"not a report of llvm-mca: {report[:200]!r}")
    return int(found[1])


def analyser() -> tuple[Path, str] | None:
    """The newest `llvm-mca` on PATH that knows the processor, and its version."""
    for name in ("llvm-mca", *(f"llvm-mca-{major}" for major in range(_NEWEST, OLDEST - 1, -1))):
        path = on_path(name)
        version = version_in(answer(path, "--version") or "") if path else None
        if path and version and int(version.split(".")[0]) >= OLDEST:
            return path, version
    return None


def cycles_a_look_up(program: Path) -> float:
    """What the inner loop of native/aqlm/neon_one_token.cpp takes, compiled as products are, with all tables in the first-level cache.

    Raises:
        ToolError: there is no compiler for AArch64.
        subprocess.CalledProcessError, ValueError: one of the two programs fails, or gives what is not understood.
    """
    compiler = verify(load_targets()["linux-aarch64"]).path
    source = asset_dir("native") / "aqlm" / "neon_one_token.cpp"
    assembly = subprocess.run(
        [str(compiler), "-std=c++17", "-O3", "-DNDEBUG", "-S", "-o", "-", str(source)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    loop = widest_loop(assembly)
    report = subprocess.run(
        [str(program), "-mtriple=aarch64-linux-gnu", "-mcpu=neoverse-v2", f"-iterations={_ITERATIONS}"],
        input="\n".join(loop) + "\n",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return total_cycles(report) / _ITERATIONS / look_ups(loop)


if __name__ == "__main__":
    sys.exit("this is a library; run one of the benchmarks beside it")
