"""The C++ ExecuTorch that a build links, from one of three providers: a wheel, a checkout of the user's, an installation of the user's.

Neither `executorch` nor `torch` is imported: a package is found by its metadata and its files.
"""

from __future__ import annotations

from etcli.toolchain.executorch.finding import check, chosen, chosen_provider, find, first_step, wanted_by
from etcli.toolchain.executorch.package import ExecutorchPackage
from etcli.toolchain.executorch.wanted import Android, Wanted
from etcli.toolchain.executorch.wheel import host_package, needs_download, wheel_for

__all__ = [
    "Android",
    "ExecutorchPackage",
    "Wanted",
    "check",
    "chosen",
    "chosen_provider",
    "find",
    "first_step",
    "host_package",
    "needs_download",
    "wanted_by",
    "wheel_for",
]
