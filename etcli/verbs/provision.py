"""Whether what a program needs is in a runner: in a build that is named, or in what etcli builds with the installed ExecuTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from etcli.build.components import always_linked, delegates_for_backend, linked_for_backend
from etcli.common.assets import asset_dir
from etcli.common.errors import EtcliError, UsageError
from etcli.manifests.build import BuildManifest
from etcli.recipe.outdated import MANIFEST
from etcli.tables.delegates import read_delegate
from etcli.tables.operators import ATTENTION, OFFERED, read_operators
from etcli.toolchain.executorch import host_package
from etcli.toolchain.registrations import read_registrations


@dataclass(frozen=True)
class Provision:
    """What of a program's operators and delegates a runner has.

    Attributes:
        by: the runner that was looked at, in words.
        lacking: names that it does not provide.
        conditional: names that etcli's runner provides only where the recipe says so, with what it has to say.
    """

    by: str
    lacking: tuple[str, ...]
    conditional: Mapping[str, str]

    def mark(self, name: str) -> str:
        """What is said behind a name: nothing where every runner has it."""
        if name in self.lacking:
            return "NOT PROVIDED"
        return f"with {self.conditional[name]}" if name in self.conditional else ""


def provision(names: Iterable[str], build: Path | None = None) -> Provision | None:
    """Hold the operators and delegates `names` against the build in the folder `build`, or else against what etcli builds here.

    None where there is no build and no ExecuTorch to look into.

    Raises:
        UsageError: `build` is no build's folder.
    """
    wanted = sorted(set(names))
    if build is not None:
        manifest = _build(build)
        has = {*manifest.operators, *manifest.backends}
        by = f"the {manifest.target} build of {manifest.name}"
        return Provision(by, tuple(name for name in wanted if name not in has), {})
    try:
        always, conditional, release = _ours()
    except EtcliError:
        return None
    return Provision(
        f"etcli's runner with ExecuTorch {release}",
        tuple(name for name in wanted if name not in always and name not in conditional),
        {name: conditional[name] for name in wanted if name in conditional and name not in always},
    )


def _ours() -> tuple[set[str], dict[str, str], str]:
    """What every runner of etcli has, and what it has where the recipe says so: read from the installed libraries and our own descriptions.

    Raises:
        EtcliError: ExecuTorch is not installed, or damaged.
    """
    package, native = host_package(), asset_dir("native")
    always = set(read_operators(native / ATTENTION).operators)
    for component in always_linked():
        registered = read_registrations(package.libraries / component.library)
        always |= {*registered.operators, *registered.backends}
    conditional: dict[str, str] = {}
    for name in OFFERED:
        conditional |= dict.fromkeys(read_operators(native / name).operators, f"build.custom_ops: [{name}]")
    for backend, components in linked_for_backend().items():
        backends = [name for component in components for name in component.backends]
        conditional |= dict.fromkeys(backends, f"export.backend: {backend}")
    for backend, folders in delegates_for_backend().items():
        backends = [name for folder in folders for name in read_delegate(native / folder).backends]
        conditional |= dict.fromkeys(backends, f"export.backend: {backend}")
    return always, conditional, package.release


def _build(folder: Path) -> BuildManifest:
    try:
        return BuildManifest.read(folder / MANIFEST)
    except FileNotFoundError:
        raise UsageError(
            f"{folder} holds no build",
            code="inspect.build",
            hint="Name the folder of one, as .etcli/NAME/build/TARGET.",
            file=folder,
        ) from None
