"""One ELF file as the audit sees it, outside of any stage: for `etcli inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.build.audit.files import file_problems
from etcli.build.audit.runtimes import inside
from etcli.common.errors import Problem, UsageError
from etcli.manifests.build import ElfFacts
from etcli.tables.targets import Target, load_targets
from etcli.toolchain.elf import read_elf
from etcli.toolchain.registrations import Registrations, read_registrations


@dataclass(frozen=True)
class FileAudit:
    """What the audit reads of a file.

    Attributes:
        target: which target it is for, by its machine, its loader and the C library that it needs; None where it is for none.
        registered: what it registers with ExecuTorch when it is loaded.
        runtimes: runtimes inside it, of which a process has one each at most.
        staged: needed libraries that the target's devices lack, so that they have to stand beside it.
        problems: what in the file itself would fail the audit of a build for the target, a vendor's only with a warning.
    """

    target: str | None
    elf: ElfFacts
    registered: Registrations
    runtimes: tuple[str, ...]
    staged: tuple[str, ...]
    problems: tuple[Problem, ...]


def audit_file(path: Path) -> FileAudit:
    """Read the executable or shared library at `path`.

    Raises:
        UsageError: it is damaged, or has nothing to load (`elf.invalid`).
    """
    elf = read_elf(path, error=UsageError)
    registered = read_registrations(path, error=UsageError)
    target = _target(elf)
    # A library that can be started as well, as the C library, has a name of its own.
    program = elf.interpreter is not None and elf.soname is None
    return FileAudit(
        target.name if target is not None else None,
        elf,
        registered,
        inside(path),
        tuple(name for name in elf.needed if target is not None and not target.is_system_library(name)),
        tuple(file_problems(path.name, elf, target, program=program, where="")) if target is not None else (),
    )


def _target(elf: ElfFacts) -> Target | None:
    fitting = [target for target in load_targets().values() if target.machine == elf.machine]
    for target in fitting:
        if elf.interpreter == target.interpreter or (elf.android_api is not None and target.system == "android"):
            return target
    # The C library's name tells bionic from glibc; what needs neither may be for any.
    return next((target for target in fitting if any(name in target.system_libraries for name in elf.needed)), None)
