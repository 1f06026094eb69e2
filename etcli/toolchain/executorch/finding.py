"""Which ExecuTorch a build gets."""

from __future__ import annotations

from etcli.common.errors import ToolError
from etcli.output.console import Console
from etcli.tables.targets import Target
from etcli.toolchain.executorch.package import ExecutorchPackage
from etcli.toolchain.executorch.wheel import host_package, wheel_for


def find(target: Target, console: Console | None = None) -> ExecutorchPackage:
    """The package that the target's table row names for `executorch.from: auto`.

    Raises:
        ToolError: it cannot be had; for a target whose package the user provides, code `executorch.not_provided`.
    """
    if target.executorch.auto == "installed":
        return host_package()
    if target.executorch.auto == "wheel":
        return wheel_for(target, console)
    raise ToolError(
        f"ExecuTorch for {target.name} comes from a checkout or an installation of yours, and none was named",
        code="executorch.not_provided",
        hint="Set build.executorch to {from: source, root: PATH} or {from: prefix, root: PATH} in the recipe.",
    )
