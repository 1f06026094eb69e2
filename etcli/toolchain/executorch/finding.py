"""Which ExecuTorch a build gets: a wheel, a checkout or an installation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from etcli.common.errors import ToolError
from etcli.common.paths import written_path
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import Target
from etcli.toolchain.chosen import Chosen
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch.checkout import clone_command, is_checkout
from etcli.toolchain.executorch.package import ExecutorchPackage
from etcli.toolchain.executorch.prefix import config_dir, prefix_package
from etcli.toolchain.executorch.source import plan_source, source_package
from etcli.toolchain.executorch.wanted import Android, Wanted
from etcli.toolchain.executorch.wheel import cached, host_package, needs_download, wheel_for

FLAG = "--executorch"
KEY = "build.executorch.root"
VARIABLE = "EXECUTORCH_ROOT"

Provider = Literal["wheel", "source", "prefix"]


def wanted_by(
    loaded: LoadedRecipe,
    components: Iterable[str],
    *,
    flag: Path | None = None,
    compiler: Compiler | None = None,
    android: Android | None = None,
    jobs: int | None = None,
) -> Wanted:
    """What the recipe asks of ExecuTorch; its folder is that of `--executorch` (`flag`), else `build.executorch.root`, else `$EXECUTORCH_ROOT`."""
    section = loaded.recipe.build.executorch
    named: tuple[str, Path] | None = None
    if flag is not None:
        named = FLAG, written_path(flag)
    elif section.root is not None:
        named = KEY, written_path(loaded.resolve_path(section.root))
    elif value := os.environ.get(VARIABLE):
        named = f"${VARIABLE}", written_path(value)
    said_by, root = named if named is not None else (KEY, None)
    return Wanted(section.from_, root, said_by, tuple(dict.fromkeys(components)), compiler, android, jobs)


def chosen_provider(target: Target, wanted: Wanted) -> tuple[Provider, Path | None]:
    """Where the target's ExecuTorch comes from, and the folder that it is in or made from; None for a wheel.

    `from: auto` is the wheel where the target has one, unless `--executorch` names a folder; otherwise what the named folder holds.

    Raises:
        ToolError: `executorch.not_provided`, `executorch.no_wheel` or `executorch.not_found`.
    """
    has_wheel = target.executorch.auto != "provided"
    if wanted.provider == "wheel" and not has_wheel:
        raise ToolError(
            f"there is no ExecuTorch wheel for {target.name}",
            code="executorch.no_wheel",
            hint="Set build.executorch to {from: source, root: PATH} for a checkout, or {from: prefix, root: PATH} for an installation.",
        )
    if wanted.provider == "wheel" or (wanted.provider == "auto" and has_wheel and wanted.said_by != FLAG):
        return "wheel", None
    if wanted.root is None:
        raise ToolError(
            f"ExecuTorch for {target.name} comes from a checkout or an installation of yours, and none was named: "
            f"looked at {FLAG}, {KEY}, ${VARIABLE}",
            code="executorch.not_provided",
            hint="Set build.executorch to {from: source, root: PATH} or {from: prefix, root: PATH} in the recipe, "
            f"or name a checkout with {FLAG} or ${VARIABLE} ({clone_command()}).",
        )
    if wanted.provider != "auto":
        return wanted.provider, wanted.root
    if config_dir(wanted.root) is not None:
        return "prefix", wanted.root
    if is_checkout(wanted.root):
        return "source", wanted.root
    raise ToolError(
        f"{wanted.said_by}: {wanted.root} holds neither a checkout nor an installation of ExecuTorch",
        code="executorch.not_found",
        hint="Name the checkout's top folder, or the CMAKE_INSTALL_PREFIX of a build.",
        file=wanted.root,
    )


def chosen(target: Target, wanted: Wanted) -> Chosen:
    """Which ExecuTorch `find` gives, where it is and by which rule; nothing is fetched or compiled.

    Raises:
        ToolError: see `chosen_provider` and `host_package`.
    """
    provider, root = chosen_provider(target, wanted)
    if root is not None:
        what = "an installation" if provider == "prefix" else "a checkout"
        rule = "what the folder holds" if wanted.provider == "auto" else f"build.executorch says from: {provider}"
        return Chosen(f"ExecuTorch, {what}", root, f"named by {wanted.said_by}; {rule}")
    host = host_package()
    if wanted.provider == "wheel":
        why = "build.executorch says from: wheel"
    else:
        why = f"build.executorch is from: auto, which is the wheel wherever the target has one, unless {FLAG} names a folder"
    if wanted.root is not None:
        why += f"; {wanted.said_by} names {wanted.root}, which is not used"
    if target.executorch.auto == "installed":
        return Chosen(f"ExecuTorch {host.version}, the wheel of this Python", host.root, why)
    platform = str(target.executorch.wheel_platform)
    there = None if needs_download(target) else cached(host.release, platform)
    return Chosen(f"ExecuTorch {host.release}, the wheel for {platform}", there, why)


def check(target: Target, wanted: Wanted) -> None:
    """All that can be told of the target's ExecuTorch before anything is fetched or compiled.

    Raises:
        ToolError: it cannot be had, with every reason.
        UsageError: CMake cannot build where the checkout is.
    """
    provider, root = chosen_provider(target, wanted)
    if provider == "wheel" or root is None:
        host_package()
    elif provider == "prefix":
        prefix_package(target, wanted, root)
    else:
        plan_source(target, wanted, root)


def first_step(target: Target, wanted: Wanted) -> str | None:
    """What `find` would have to do first that takes time, as a step of a plan; None where it only has to look.

    Raises:
        ToolError: see `check`.
    """
    provider, root = chosen_provider(target, wanted)
    if provider == "wheel":
        return f"fetch ExecuTorch for {target.executorch.wheel_platform} with pip" if needs_download(target) else None
    if provider == "source" and root is not None and not plan_source(target, wanted, root).done:
        return f"compile ExecuTorch from {root}"
    return None


def find(target: Target, wanted: Wanted | None = None, console: Console | None = None) -> ExecutorchPackage:
    """The ExecuTorch for `target`, fetched or compiled now if need be.

    Raises:
        ToolError: it cannot be had.
        BuildError: the checkout does not compile.
    """
    wanted = wanted or Wanted()
    provider, root = chosen_provider(target, wanted)
    if provider == "prefix" and root is not None:
        return prefix_package(target, wanted, root, console)
    if provider == "source" and root is not None:
        return source_package(target, wanted, root, console)
    return host_package() if target.executorch.auto == "installed" else wheel_for(target, console)
