"""A folder like MediaTek's SDK: libraries for aarch64 that define the right names and do nothing, a header, wheels that are names only."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from etcli.tables.neuropilot import neuropilot

COMPILER = "aarch64-linux-gnu-gcc"
CONVERTER = "mtk_converter-8.13.0+public-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
NEURON = "mtk_neuron-8.2.23-py3-none-linux_x86_64.whl"


def make_library(path: Path, symbols: Sequence[str], *, compiler: str = COMPILER, mark: str = "") -> Path:
    """A shared library that defines functions `symbols`, and holds the text `mark`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"void {name}(void) {{}}\n" for name in symbols) + f'const char text[] = "{mark}";\n'
    subprocess.run(
        [compiler, "-shared", "-nostdlib", "-fPIC", "-x", "c", "-o", path, "-"],
        input=text,
        text=True,
        check=True,
        timeout=60,
    )
    return path


def make_sdk(root: Path) -> Path:
    """The whole of it, below `root`."""
    for library in neuropilot().libraries:
        make_library(root / "lib" / "arm64-v8a" / library.name, library.symbols)
    header = root / "include" / "NeuronAdapter.h"
    header.parent.mkdir()
    header.write_text("/* the adapter */\n")
    for name in (CONVERTER, NEURON):
        (root / name).write_bytes(b"")
    return root


def make_python(path: Path, packages: Mapping[str, str], *, version: str = "3.10.13", **changes: str) -> Path:
    """A program that answers as an interpreter of `version` with `packages` would."""
    said = {
        "implementation": "CPython",
        "version": [int(word) for word in version.split(".")],
        "system": "Linux",
        "machine": "x86_64",
        "packages": dict(packages),
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {shlex.quote(json.dumps(said))}\n")
    path.chmod(0o755)
    return path
