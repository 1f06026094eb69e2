"""ExecuTorch's C++ package out of a wheel: the installed one, or that of another platform, fetched once.

Neither `executorch` nor `torch` is imported: the package is found by its metadata and its files.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from etcli.common.errors import ToolError
from etcli.common.files import check_relative, remove_tree
from etcli.common.locks import exclusive
from etcli.common.wheels import download_wheel
from etcli.common.workspace import cache_dir
from etcli.common.zips import is_unreadable
from etcli.output.console import Console
from etcli.tables.targets import Target
from etcli.toolchain.elf import read_elf
from etcli.toolchain.executorch.package import ExecutorchPackage, broken_wheel

_PARTS = ("include", "lib", "schema", "share")
_MAX_UNPACKED = 2 << 30


def host_package() -> ExecutorchPackage:
    """The C++ package inside the ExecuTorch wheel of this Python.

    Raises:
        ToolError: `executorch.missing` or `executorch.broken`, with the pip line.
    """
    release = installed_release()
    spec = importlib.util.find_spec("executorch")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    root = next((Path(folder) for folder in folders if (Path(folder) / "version.py").is_file()), None)
    if root is None:
        raise broken_wheel(Path(folders[0]) if folders else None, release, "its files are not where its metadata says")
    return _package(root, release, "installed")


def wheel_for(target: Target, console: Console | None = None) -> ExecutorchPackage:
    """The C++ package for `target` out of the same release's wheel, fetched with pip and unpacked in the cache once.

    Raises:
        ToolError: this Python has no ExecuTorch, the wheel cannot be fetched, or it does not hold what was asked for.
        ValueError: the target's ExecuTorch does not come from a wheel.
    """
    platform = target.executorch.wheel_platform
    if platform is None:
        raise ValueError(f"target {target.name} has no ExecuTorch wheel")
    host = host_package()
    folder = cached(host.release, platform)

    def waiting() -> None:
        if console is not None:
            console.note(f"waiting for another process that fetches ExecuTorch {host.release} for {platform}")

    try:
        with exclusive(folder.with_name(f"{folder.name}.lock"), on_wait=waiting):
            if folder.exists():
                try:
                    return _for_target(folder, host, target, platform)
                except ToolError as error:
                    if console is not None:
                        console.note(f"fetching ExecuTorch for {platform} again: {error}")
                    remove_tree(folder)
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as text:
                temporary = Path(text)
                if console is not None:
                    console.note(f"fetching ExecuTorch {host.release} for {platform} with pip")
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                requirement = f"executorch=={host.release}"
                wheel = download_wheel(requirement, temporary / "wheel", platform=platform, python_version=version)
                _unpack(wheel, temporary / "package")
                _for_target(temporary / "package", host, target, platform)
                (temporary / "package").rename(folder)
    except OSError as error:
        raise ToolError(
            f"cannot keep ExecuTorch for {platform} in {folder.parent}: {error.strerror or error}",
            code="executorch.cache",
            hint="Free some space there, make it writable, or set ETCLI_CACHE_DIR to another folder.",
        ) from error
    return _for_target(folder, host, target, platform)


def needs_download(target: Target) -> bool:
    """Whether `wheel_for` would have to fetch the target's wheel first."""
    platform = target.executorch.wheel_platform
    return platform is not None and not cached(installed_release(), platform).exists()


def cached(release: str, platform: str) -> Path:
    """Where the C++ package of a release's wheel for `platform` is kept."""
    return cache_dir() / "executorch" / f"{release}-{platform}"


def installed_release() -> str:
    """The release of this Python's ExecuTorch, as `1.5.1`.

    Raises:
        ToolError: code `executorch.missing`.
    """
    try:
        return importlib.metadata.version("executorch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        raise ToolError(
            "the executorch package is not installed in this Python",
            code="executorch.missing",
            hint=f"Install it: {sys.executable} -m pip install executorch",
        ) from None


def _package(root: Path, release: str, provider: str) -> ExecutorchPackage:
    try:
        text = (root / "version.py").read_text(encoding="utf-8")
    except OSError as error:
        raise broken_wheel(root, release, str(error)) from None
    version = re.search(r"""^__version__\b[^=\n]*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    commit = re.search(r"""^git_version\b[^=\n]*=\s*["']([0-9a-f]{40})["']""", text, re.MULTILINE)
    if version is None or version[1].partition("+")[0] != release:
        found = version[1] if version else "unknown"
        raise broken_wheel(root, release, f"its files are of version {found}")
    for name in (
        "share/cmake/executorch-config.cmake",
        "include/executorch/runtime/executor/program.h",
        "lib/libexecutorch.so",
    ):
        if not (root / name).is_file():
            raise broken_wheel(root, release, f"it lacks {name}")
    return ExecutorchPackage(root, release, version[1], commit[1] if commit else None, provider)


def _for_target(root: Path, host: ExecutorchPackage, target: Target, platform: str) -> ExecutorchPackage:
    package = _package(root, host.release, f"wheel:{platform}")
    machine = read_elf(package.libraries / "libexecutorch.so", error=ToolError).machine
    if machine != target.machine:
        raise broken_wheel(root, host.release, f"its libraries are for {machine}, {target.name} needs {target.machine}")
    if package.commit != host.commit:
        raise broken_wheel(
            root, host.release, f"it was built from commit {package.commit}, the installed one from {host.commit}"
        )
    return package


def _unpack(wheel: Path, folder: Path) -> None:
    """Take the C++ parts of the `executorch` package out of a wheel, as plain files."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if _wanted(member)]
            if sum(member.file_size for member in members) > _MAX_UNPACKED:
                raise ToolError(f"{wheel.name} unpacks to more than {_MAX_UNPACKED >> 30} GiB", code="executorch.wheel")
            for member in members:
                path = folder.joinpath(*check_relative(member.filename).parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, path.open("xb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    except Exception as error:
        if is_unreadable(error) or isinstance(error, (FileExistsError, NotADirectoryError)):
            raise ToolError(
                f"{wheel.name} is damaged: {error}",
                code="executorch.wheel",
                hint="Try again; `pip cache purge` drops a bad copy.",
            ) from None
        raise


def _wanted(member: zipfile.ZipInfo) -> bool:
    parts = PurePosixPath(member.filename).parts
    if member.is_dir() or len(parts) < 2 or parts[0] != "executorch":
        return False
    return parts[1] in _PARTS or parts[1:] == ("version.py",)
