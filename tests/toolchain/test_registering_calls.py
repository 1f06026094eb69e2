"""An operator that one source registers twice is told by its object, for either machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etcli.toolchain.registering_calls import repetitions

HEADER = """
struct Kernel { const char* name; void (*run)(); };
int register_kernels(const Kernel* data, unsigned long size);
#define LIBRARY(name, f, id) static Kernel kernel##id{name, f}; static int done##id = register_kernels(&kernel##id, 1);
static void run() {}
"""
TWICE = 'LIBRARY("shout::twice.out", run, 1)\n'
THRICE = 'LIBRARY("shout::thrice.out", run, 2)\n'
AGAIN = 'LIBRARY("shout::twice.out", run, 3)\n'


def archive(folder: Path, text: str, triple: str) -> Path:
    (folder / "one.cpp").write_text(HEADER + text)
    prefix = f"{triple}-" if triple else ""
    subprocess.run([f"{prefix}g++", "-O2", "-fPIC", "-c", "one.cpp"], cwd=folder, check=True)
    subprocess.run([f"{prefix}ar", "rcs", "libone.a", "one.o"], cwd=folder, check=True)
    return folder / "libone.a"


@pytest.mark.parametrize("triple", ["", "aarch64-linux-gnu"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TWICE + THRICE, []),
        (TWICE + AGAIN, [(2, ("shout::twice.out",))]),
        (TWICE + THRICE + AGAIN, [(3, ("shout::thrice.out", "shout::twice.out"))]),
    ],
)
def test_more_calls_than_names(tmp_path: Path, text: str, told: list[tuple[int, tuple[str, ...]]], triple: str) -> None:
    assert [(found.calls, found.operators) for found in repetitions(archive(tmp_path, text, triple))] == told
