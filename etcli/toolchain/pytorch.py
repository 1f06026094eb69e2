"""PyTorch's C++ side: headers and shared libraries of the wheel in this Python, found by metadata and files, without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import ToolError
from etcli.toolchain.elf import read_elf

_OPENMP = re.compile(r"libgomp\b.*\.so(\.\d+)*")


@dataclass(frozen=True)
class TorchPackage:
    """A PyTorch that extensions can be compiled against.

    `root` is its folder, `version` the whole version (`2.13.0+cpu`), `commit` its source commit; `openmp` is the GNU OpenMP library that it
    brings and runs its own kernels on, None where it uses another or the system's.
    """

    root: Path
    version: str
    commit: str | None
    openmp: Path | None

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders for the compiler's include path."""
        return self.root / "include", self.root / "include" / "torch" / "csrc" / "api" / "include"

    @property
    def libraries(self) -> tuple[Path, ...]:
        """What an extension for the CPU is linked with."""
        found = (self.root / "lib" / "libtorch_cpu.so", self.root / "lib" / "libc10.so")
        return (*found, self.openmp) if self.openmp else found


def host_torch() -> TorchPackage:
    """The PyTorch of this Python.

    Raises:
        ToolError: `torch.missing` or `torch.broken`, with the pip line.
    """
    try:
        installed = importlib.metadata.version("torch")
        spec = importlib.util.find_spec("torch")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        raise ToolError(
            "the torch package is not installed in this Python",
            code="torch.missing",
            hint=f"Install it: {sys.executable} -m pip install torch",
        ) from None
    release = installed.partition("+")[0]
    if spec is None or spec.origin is None:
        raise _broken(release, "its files are not where its metadata says")
    root = Path(spec.origin).parent
    try:
        text = (root / "version.py").read_text(encoding="utf-8")
    except OSError as error:
        raise _broken(release, str(error)) from None
    version = re.search(r"""^__version__\b[^=\n]*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    commit = re.search(r"""^git_version\b[^=\n]*=\s*["']([0-9a-f]{40})["']""", text, re.MULTILINE)
    if version is None or version[1].partition("+")[0] != release:
        raise _broken(release, f"its files are of version {version[1] if version else 'unknown'}")
    for name in ("include/torch/library.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
        if not (root / name).is_file():
            raise _broken(release, f"it lacks {name}")
    return TorchPackage(root, version[1], commit[1] if commit else None, _openmp(root / "lib"))


def _openmp(folder: Path) -> Path | None:
    needed = read_elf(folder / "libtorch_cpu.so", error=ToolError).needed
    return next((folder / name for name in needed if _OPENMP.fullmatch(name) and (folder / name).is_file()), None)


def _broken(release: str, why: str) -> ToolError:
    return ToolError(
        f"the PyTorch {release} package cannot be compiled against: {why}",
        code="torch.broken",
        hint=f"Install it again: {sys.executable} -m pip install --force-reinstall --no-deps torch=={release}",
    )
