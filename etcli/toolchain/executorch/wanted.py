"""What a build asks of an ExecuTorch that does not come out of a wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etcli.toolchain.compilers import Compiler


@dataclass(frozen=True)
class Android:
    """What an ExecuTorch for Android is compiled with.

    `ndk` is the NDK's absolute folder, `revision` its Pkg.Revision, `toolchain_file` its CMake toolchain file, `abi` as ANDROID_ABI,
    `api_level` as in `android-26`, `stl` as ANDROID_STL, `options` further CMake variables (page size).
    """

    ndk: Path
    revision: str
    toolchain_file: Path
    abi: str
    api_level: int
    stl: str
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Wanted:
    """Where an ExecuTorch is to come from, and what it has to hold.

    `provider` is the recipe's `build.executorch.from`; `root` the folder that `said_by` (`--executorch`, `build.executorch.root`,
    `$EXECUTORCH_ROOT`) names; `components` as in `toolchains/executorch.yaml`; `compiler` is the build's; `jobs` compilers at once.
    """

    provider: Literal["auto", "wheel", "source", "prefix"] = "auto"
    root: Path | None = None
    said_by: str = "build.executorch.root"
    components: tuple[str, ...] = ()
    compiler: Compiler | None = None
    android: Android | None = None
    jobs: int | None = None
