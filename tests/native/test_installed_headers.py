"""What native code includes of ExecuTorch is there in an installation too, which has fewer headers than the Python package."""

from __future__ import annotations

import re
from pathlib import Path

from executorch_standin import HEADERS

from etcli.common.assets import asset_dir
from etcli.toolchain.executorch import host_package

# Sources that are only ever built against the Python package.
_WHEEL_ONLY = ("neuron_sim", "tests", "testing")
_INCLUDE = re.compile(r"^#include <(executorch/[^>]+)>", re.MULTILINE)


def sources(native: Path) -> list[Path]:
    found = [path for ending in ("h", "cpp", "inc") for path in native.rglob(f"*.{ending}")]
    return sorted(path for path in found if not set(path.relative_to(native).parts) & {*_WHEEL_ONLY})


def test_every_header_is_installed_or_asked_for_first() -> None:
    seen = set()
    for path in sources(asset_dir("native")):
        text = path.read_text(encoding="utf-8")
        for header in _INCLUDE.findall(text):
            seen.add(header)
            installed = any(header.startswith(f"executorch/{folder}/") for folder in HEADERS)
            assert installed or f"#if __has_include(<{header}>)" in text, f"{path} includes {header}"
    assert "executorch/runtime/executor/program.h" in seen
    assert all((host_package().root / "include" / header).is_file() for header in seen if "/threadpool/" not in header)
