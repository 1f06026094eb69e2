"""Whether the runner of a build provides what the programs of a bundle need."""

from __future__ import annotations

from etcli.common.errors import DeployError, Problems
from etcli.manifests.build import BuildManifest
from etcli.manifests.bundle import BundleManifest
from etcli.tables.operators import AQLM

_OURS = "etcli::"
"""Namespace of the operators that every runner of ours is linked with."""

_SHIPPED = {"aqlm::": AQLM}
"""Namespaces of operators that etcli offers, and the name that build.custom_ops has for them."""


def check_fit(bundle: BundleManifest, build: BuildManifest, *, rebuild: str, export: str) -> None:
    """Compare operators, delegates and the program identifier. ExecuTorch itself would say so only on the device, by a number.

    Args:
        rebuild: the command that builds again.
        export: the command that exports again.

    Raises:
        DeployError: something is lacking: every difference at once, with its names.
    """
    problems = Problems()
    methods = [method for chunk in bundle.chunks for file in chunk.files for method in file.methods]
    operators = {name for method in methods for name in method.operators} - set(build.operators)
    if operators:
        problems.add(
            DeployError.problem(
                f"the bundle needs operators that the build for {build.target} lacks: {', '.join(sorted(operators))}",
                code="deploy.operators_lacking",
                hint=_operators_hint(operators, rebuild),
            )
        )
    backends = {name for method in methods for name in method.backends} - set(build.backends)
    if backends:
        provided = ", ".join(build.backends) or "none"
        problems.add(
            DeployError.problem(
                f"the bundle needs delegates that the build for {build.target} lacks: {', '.join(sorted(backends))} "
                f"(it provides {provided})",
                code="deploy.backends_lacking",
                hint=f"Bundle and build are of different export.backend values; run: {rebuild}",
            )
        )
    if bundle.versions.program != build.program:
        problems.add(
            DeployError.problem(
                f"the bundle's programs are {bundle.versions.program} (ExecuTorch {bundle.versions.executorch}), "
                f"the build reads {build.program} (ExecuTorch {build.executorch_version})",
                code="deploy.program_version",
                hint=f"Use one ExecuTorch release for both; run: {export} && {rebuild}",
            )
        )
    problems.raise_if_any(DeployError)


def _operators_hint(lacking: set[str], rebuild: str) -> str:
    ours = {name for name in lacking if name.startswith(_OURS)}
    if ours == lacking:
        return f"The build is from an etcli that did not have them; run: {rebuild}"
    steps = []
    if shipped := sorted({name for space, name in _SHIPPED.items() for one in lacking if one.startswith(space)}):
        steps.append(f"the recipe asks for {', '.join(shipped)} in build.custom_ops, or for a precision that brings it")
    if {name for name in lacking if not name.startswith((_OURS, *_SHIPPED))}:
        steps.append("build.custom_ops lists the folder of the operator library that provides them")
    return f"See that {' and '.join(steps)}, then run: {rebuild}"
