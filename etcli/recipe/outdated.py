"""Whether an earlier stage's output still fits the recipe: what later stages ask before they use it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, StaleError
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ExportReport
from etcli.output.console import Console
from etcli.recipe.builtin import is_builtin_file
from etcli.recipe.custom_ops import own_operators, shipped_operators
from etcli.recipe.fingerprint import build_fingerprint, export_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.sources import source_stamp

MANIFEST = "manifest.json"
REPORT = "export-report.json"


def bundle_outdated(loaded: LoadedRecipe, manifest: BundleManifest, folder: Path) -> str | None:
    """Why the bundle in `folder` no longer fits the recipe, or None.

    The source's size and time are compared where the bundle still has its export report, which a bundle from elsewhere may not.
    """
    if manifest.recipe_sha256 != export_fingerprint(loaded.recipe):
        return "the recipe's model, export or neuron values have changed since"
    try:
        report = ExportReport.read(folder / REPORT)
    except FileNotFoundError:
        return None
    if source_stamp(loaded, Path(report.source_path)) != report.source_stamp:
        return f"the checkpoint {report.source_path} has changed since"
    return None


def build_outdated(loaded: LoadedRecipe, manifest: BuildManifest) -> str | None:
    """Why a build no longer fits the recipe, or None."""
    if manifest.recipe_sha256 != build_fingerprint(loaded.recipe, manifest.target):
        return "the recipe's build values have changed since"
    return _operators_outdated(loaded, manifest)


def _operators_outdated(loaded: LoadedRecipe, manifest: BuildManifest) -> str | None:
    """Why the operator libraries in a build are not those of the recipe, or None. Moved sources are the same sources."""
    shipped = {library.shipped for library in manifest.custom_ops if library.shipped is not None}
    if lacking := sorted(set(shipped_operators(loaded.recipe)) - shipped):
        return f"it lacks the operators of {', '.join(lacking)}"
    if more := sorted(shipped - set(shipped_operators(loaded.recipe))):
        return f"the recipe no longer asks for the operators of {', '.join(more)}"
    built = {library.name: library.sha256 for library in manifest.custom_ops if library.shipped is None}
    try:
        own = {library.name: library.sha256 for library in own_operators(loaded)}
    except EtcliError as error:
        return f"its operator libraries cannot be read: {error.problems[0].message}"
    for name in sorted({*own, *built}):
        if name not in built:
            return f"it lacks the operator library {name}"
        if name not in own:
            return f"build.custom_ops no longer lists the operator library {name}"
        if own[name] != built[name]:
            return f"the sources of the operator library {name} have changed since"
    return None


def recipe_argument(loaded: LoadedRecipe) -> str:
    """How the user named this recipe on the command line, or would: a built-in one by its name, another by its path."""
    if loaded.argument is not None:
        return loaded.argument
    return loaded.path.stem if is_builtin_file(loaded.path) else str(loaded.path)


def stale_problem(what: str, why: str, command: str) -> Problem:
    """The problem of an outdated `what`, with the command that renews it."""
    return StaleError.problem(
        f"the {what} is outdated: {why}",
        code=f"{what.split()[0]}.outdated",
        hint=f"Run: {command} (or add --stale-ok to use it as it is)",
    )


def command_line(verb: str, loaded: LoadedRecipe, workspace: Workspace, *options: str, named: bool = True) -> str:
    """`etcli VERB RECIPE ...` as a user would type it here: with the `--set`s given, and `--workspace` where the default is another.

    Without `named`, a recipe that the user left out is left out here too.
    """
    recipe = [recipe_argument(loaded)] if named or loaded.argument is not None else []
    words = ["etcli", verb, *recipe, *options]
    for setting in loaded.sets:
        words += ["--set", setting]
    default = Path(os.environ.get("ETCLI_WORKSPACE") or ".etcli")
    if workspace.root.absolute() != default.absolute():
        words += ["--workspace", str(workspace.root)]
    return shlex.join(words)


def require_bundle(
    loaded: LoadedRecipe, workspace: Workspace, folder: Path, *, stale_ok: bool, console: Console
) -> BundleManifest:
    """The manifest of the bundle in `folder`, which must fit the recipe; with `stale_ok` a misfit is only a warning.

    Raises:
        StaleError: it is missing, not valid, or outdated; the hint is the `etcli export` line.
    """
    command = command_line("export", loaded, workspace)
    try:
        manifest = BundleManifest.read(folder / MANIFEST, error=StaleError)
    except FileNotFoundError:
        raise StaleError(f"there is no bundle in {folder}", code="bundle.missing", hint=f"Run: {command}") from None
    why = bundle_outdated(loaded, manifest, folder)
    if why is not None:
        if not stale_ok:
            raise StaleError.many([stale_problem("bundle", why, command)])
        console.warn(f"using an outdated bundle: {why}", code="bundle.outdated")
    return manifest
