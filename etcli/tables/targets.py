"""The platforms that a runner can be built for, from `toolchains/targets.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import pydantic

from etcli.common.errors import UsageError
from etcli.tables.reading import Row, Table, read_table


class Compiler(Row):
    """Programs to look for on PATH, best first; `apt` is the Debian and Ubuntu package that brings the first."""

    c: tuple[str, ...] = pydantic.Field(strict=False)
    cxx: tuple[str, ...] = pydantic.Field(strict=False)
    apt: str | None


class CMakeFacts(Row):
    """CMAKE_SYSTEM_NAME and CMAKE_SYSTEM_PROCESSOR; `cross` is whether a toolchain file has to set them."""

    system_name: str
    system_processor: str
    cross: bool


class Emulator(Row):
    """How programs of this target run on a machine of another kind: a user-mode qemu and its default `-cpu`."""

    program: str
    apt: str
    cpu: str


class OpenMP(Row):
    """How one kind of compiler compiles OpenMP and links its runtime statically.

    `archive` is the runtime's file, to be found with the compiler's `-print-file-name`; None where the options in `link` bring it.
    """

    compile: tuple[str, ...] = pydantic.Field(strict=False)
    link: tuple[str, ...] = pydantic.Field(strict=False)
    archive: str | None


class ExecutorchFacts(Row):
    """Where the C++ ExecuTorch of this target comes from when the recipe says `auto`.

    `installed`: the wheel in this Python's site-packages; `wheel`: the same release's wheel for `wheel_platform`, downloaded;
    `provided`: a checkout or prefix that the user brings.
    """

    auto: Literal["installed", "wheel", "provided"]
    wheel_platform: str | None

    @pydantic.model_validator(mode="after")
    def _wheel_has_platform(self) -> ExecutorchFacts:
        if (self.auto == "wheel") != (self.wheel_platform is not None):
            raise ValueError("wheel_platform goes with auto: wheel, and only with it")
        return self


class Target(Row):
    """One platform.

    `machine` is the ELF e_machine as pyelftools names it, `abi` Android's name of the instruction set (what `ro.product.cpu.abilist`
    holds), `interpreter` the program interpreter (PT_INTERP) of its dynamic executables. `system_libraries` are on every device of
    the target and never deployed; `runtime_libraries` are the compiler's C++ runtime and always deployed. `min_load_alignment` is in
    bytes and holds for each PT_LOAD segment of everything staged. `api_level` is the lowest Android API level that a build may be for, and the
    one that it is for where nothing asks for more.
    """

    name: str
    title: str
    system: Literal["linux", "android"]
    triple: str
    abi: Literal["x86_64", "arm64-v8a"]
    machine: Literal["EM_X86_64", "EM_AARCH64"]
    interpreter: str
    sysroot: str | None = pydantic.Field(description="where the cross compiler's libraries and loader stand, if not /")
    compiler: Compiler
    cmake: CMakeFacts
    emulator: Emulator | None
    executorch: ExecutorchFacts
    compile_flags: tuple[str, ...] = pydantic.Field(strict=False)
    link_flags: tuple[str, ...] = pydantic.Field(strict=False)
    openmp: Mapping[Literal["gcc", "clang"], OpenMP]
    runtime_libraries: tuple[str, ...] = pydantic.Field(strict=False)
    system_libraries: tuple[str, ...] = pydantic.Field(strict=False)
    later_system_libraries: Mapping[str, int] = pydantic.Field(
        default={}, description="by the API level that brought each"
    )
    min_load_alignment: int = pydantic.Field(gt=0)
    api_level: int | None = pydantic.Field(description="lowest Android API level built for, and the default")

    @pydantic.field_validator("min_load_alignment")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("an alignment is a power of two")
        return value

    def is_system_library(self, soname: str, api_level: int | None = None) -> bool:
        """Whether every device of this target has the library, from `api_level` on where it is Android's, so that it need not be deployed."""
        since = self.system_library_since(soname)
        return since is not None and (api_level is None or since <= api_level)

    def system_library_since(self, soname: str) -> int | None:
        """The first API level of Android with the library, 0 where all have it or the target knows no levels; None where it is not the system's."""
        return 0 if soname in self.system_libraries else self.later_system_libraries.get(soname)


class _Targets(Table):
    targets: tuple[Target, ...] = pydantic.Field(strict=False, min_length=1)

    @pydantic.model_validator(mode="after")
    def _unique(self) -> _Targets:
        names = [target.name for target in self.targets]
        if len(set(names)) != len(names):
            raise ValueError(f"a target is named twice: {', '.join(names)}")
        return self


@functools.lru_cache(maxsize=1)
def load_targets() -> Mapping[str, Target]:
    """Every described target by name, in the order of the file.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return MappingProxyType({target.name: target for target in read_table("targets.yaml", _Targets).targets})


def known_target(name: str) -> Target:
    """The target `name`.

    Raises:
        UsageError: there is none.
    """
    targets = load_targets()
    if name not in targets:
        raise UsageError(
            f"there is no target {name!r}",
            code="build.unknown_target",
            hint=f"Targets are: {', '.join(targets)}.",
        )
    return targets[name]
