"""A C++ ExecuTorch that a build can link: where it stands, which release it is, how its parts are named, and whether it may be used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etcli.common.errors import ToolError

_REINSTALL = "Install it again: python -m pip install --force-reinstall --no-deps executorch=={release}"
_IDENTIFIER = re.compile(rb"ET\d\d(?=\0)")


@dataclass(frozen=True)
class ExecutorchPackage:
    """A usable C++ ExecuTorch.

    `root` is its folder, `release` its version without the local label (`1.5.1`), `version` the whole (`1.5.1+cpu`), `commit` the source
    commit where it is known, `provider` where it came from: `installed`, `wheel:<platform>`, `source` or `prefix`.

    `layout` says how its CMake package names its parts: `wheel`, shared libraries behind `executorch::`, which are deployed; `installation`,
    what ExecuTorch's own CMake project installs: static libraries under the bare names of its targets, which programs take in.
    """

    root: Path
    release: str
    version: str
    commit: str | None
    provider: str
    layout: Literal["wheel", "installation"] = "wheel"

    @property
    def cmake_dir(self) -> Path:
        """What CMake's `executorch_DIR` has to name."""
        if self.layout == "wheel":
            return self.root / "share" / "cmake"
        return self.libraries / "cmake" / "ExecuTorch"

    @property
    def libraries(self) -> Path:
        """The folder of the libraries."""
        other = self.root / "lib64"
        return (
            other if self.layout == "installation" and (other / "cmake" / "ExecuTorch").is_dir() else self.root / "lib"
        )

    @property
    def static(self) -> bool:
        """Whether programs take the libraries in, so that none of them is deployed."""
        return self.layout == "installation"

    def library_files(self) -> list[Path]:
        """Every library of the package, in the order of their names."""
        return sorted(self.libraries.glob("*.a" if self.static else "*.so*"))

    def program_identifier(self) -> str:
        """The FlatBuffers file identifier of the programs that this runtime reads, as `ET12`.

        It is found in the runtime library, which compares it with bytes 4 to 8 of a `.pte`; a wheel has the schema beside it, which must agree.

        Raises:
            ToolError: code `executorch.broken`: schema and library are missing or disagree.
        """
        return self._static_identifier() if self.static else self._wheel_identifier()

    def _wheel_identifier(self) -> str:
        schema = self.root / "schema" / "program.fbs"
        try:
            match = re.search(r'^file_identifier "(\w{4})";', schema.read_text(encoding="utf-8"), re.MULTILINE)
            library = (self.libraries / "libexecutorch.so").read_bytes()
        except OSError as error:
            raise broken_wheel(self.root, self.release, str(error)) from None
        if match is None or match[1].encode() + b"\0" not in library:
            raise broken_wheel(self.root, self.release, "its schema and its runtime disagree about the program format")
        return match[1]

    def _static_identifier(self) -> str:
        library = self.libraries / "libexecutorch_core.a"
        try:
            found: set[str] = {match.decode() for match in _IDENTIFIER.findall(library.read_bytes())}
        except OSError as error:
            raise ToolError(
                f"cannot read {library}: {error.strerror}",
                code="executorch.broken",
                hint="Install ExecuTorch again.",
                file=library,
            ) from None
        if len(found) != 1:
            raise ToolError(
                f"{library} does not say which format of programs it reads",
                code="executorch.broken",
                hint="It has to be ExecuTorch's core, compiled without link-time optimisation. Install ExecuTorch again.",
                file=library,
            )
        return found.pop()


def release_numbers(release: str) -> tuple[int, ...]:
    """The three numbers of a release, to be compared: (1, 5, 1) of `1.5.1`, and of `1.5.1.dev20260801`."""
    return tuple(int(word) for word in re.findall(r"\d+", release)[:3])


def broken_wheel(root: Path | None, release: str, why: str) -> ToolError:
    """The error of a wheel's package that cannot be used, with the pip line."""
    return ToolError(
        f"the ExecuTorch {release} package{f' in {root}' if root else ''} cannot be used: {why}",
        code="executorch.broken",
        hint=_REINSTALL.format(release=release),
    )
