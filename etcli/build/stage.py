"""The build stage: recipe and target in, `build/<target>/stage/` with every program and library to be pushed and its manifest out."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from etcli.build import upstream
from etcli.build.android import AndroidSettings, android_settings, cpu_flags
from etcli.build.apps import LIBRARY, AppParts, app_parts, put_together
from etcli.build.checking import Checked, check_commands, check_stage
from etcli.build.components import Component, components, operator_libraries, simulated_npu
from etcli.build.described import STAGE, make_manifest, whole_build
from etcli.build.flags import check_flags
from etcli.build.inputs import Inputs
from etcli.build.record import RECORD, BuildRecord, changed, make_record, read_record, tree_changes
from etcli.build.render import BINARY_DIR, BUILD_TYPE, Toolset, render_project
from etcli.build.sources import RunnerSources, read_sources
from etcli.build.tools import HostTools, find_host_tools
from etcli.build.tree import CONFIGURED, Tree
from etcli.build.vendor import vendor_libraries
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError, Problems, ToolError
from etcli.common.files import remove_tree, remove_unfinished, write_if_changed
from etcli.common.hashing import file_sha256
from etcli.common.locks import exclusive, holder
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.recipe.fingerprint import build_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.recipe.resolved import write_resolved
from etcli.tables.operators import OperatorLibrary
from etcli.tables.simulated_npu import SimulatedNpu
from etcli.tables.targets import Target, known_target
from etcli.toolchain import cmake, executorch, ninja
from etcli.toolchain.chosen import Chosen


@dataclass(frozen=True)
class BuildOptions:
    """What the command line chose. `target` may be `auto`, which is `host` here; `jobs` compilers at once, by default one a core; `library`: the library for
    apps too; `ndk` the folder
    of `--ndk`, `executorch` of `--executorch`."""

    target: str
    configure_only: bool = False
    clean: bool = False
    jobs: int | None = None
    dry_run: bool = False
    library: bool = False
    ndk: Path | None = None
    executorch: Path | None = None


@dataclass(frozen=True)
class BuildResult:
    """What a build came to.

    `manifest` is None where nothing was compiled (`configure_only`, `dry_run`). `current`: everything was there already. `plan` says what
    was done, or would be, in order, each step with its reason; `uses`, of a dry run, which NDK and ExecuTorch it would be done with.
    """

    manifest: BuildManifest | None
    folder: Path
    current: bool
    plan: tuple[str, ...] = ()
    uses: tuple[Chosen, ...] = ()


def build(loaded: LoadedRecipe, workspace: Workspace, options: BuildOptions, console: Console) -> BuildResult:
    """Render, configure, compile, put together and audit the runner for one target; do only what its inputs ask for.

    Raises:
        UsageError: there is no such target, or one of the user's operator libraries is wrong, or the recipe's values do not go together for
            the target (exit 2).
        ToolError: everything this machine lacks for it, at once (exit 3).
        BuildError: configuration, compilation or the audit failed (exit 7). No manifest is left then.
    """
    target = known_target("host" if options.target == "auto" else options.target)
    folder = workspace.build(target.name).absolute()
    cmake.check_path(folder, "Name another place with --workspace, or move it.")
    libraries = operator_libraries(loaded, asset_dir("native"))
    for library in libraries:
        cmake.check_path(library.root, "Move it.")
    apps = app_parts(loaded, target, console) if options.library else None
    shared = (
        *(apps.files if apps is not None else ()),
        *([upstream.LIBRARY] if upstream.wants_upstream(loaded.recipe, target) else []),
    )
    android = android_settings(loaded, target, libraries, shared)
    simulated = simulated_npu(loaded.recipe, asset_dir("native"))
    parts = components(loaded.recipe, libraries, simulated)
    problems = Problems()
    vendor = problems.attempt(lambda: vendor_libraries(loaded, target, console))
    tools = problems.attempt(
        lambda: find_host_tools(
            loaded,
            target,
            options.ndk,
            android,
            parts,
            executorch_flag=options.executorch,
            simulated=simulated is not None,
            jobs=options.jobs,
        )
    )
    if vendor is None or tools is None:
        raise ToolError.many(problems.found)
    check_flags(libraries, tools.compiler, android)
    if tools.ndk is not None:
        cmake.check_path(tools.ndk.root, "Move it, or name another NDK.")
    uses = (*([tools.ndk.chosen()] if tools.ndk is not None else []), executorch.chosen(target, tools.wanted))
    if options.dry_run and (first := executorch.first_step(target, tools.wanted)) is not None:
        plan = (first, "configure", "compile", "put the stage together and audit it")
        return BuildResult(None, folder, current=False, plan=plan, uses=uses)
    inputs = _inputs(loaded, libraries, parts, simulated, vendor, target, tools, android, apps, folder, console)

    lock = workspace.build_lock(target.name)

    def waiting() -> None:
        console.note(f"waiting for another process that uses {folder}: {holder(lock)}")

    if options.dry_run:
        return replace(_planned(folder, inputs, options), uses=uses)
    for remark in tools.ndk.remarks() if tools.ndk is not None else ():
        console.note(remark)
    try:
        with exclusive(lock, on_wait=waiting, what=f"build of {loaded.recipe.name} for {target.name}"):
            planned = _planned(folder, inputs, options)
            if planned.current:
                console.note(f"build for {target.name}: current")
                return planned
            return _build(loaded, folder, inputs, options, planned.plan, console)
    except OSError as error:
        raise BuildError(
            f"cannot write the build in {folder}: {error.strerror or error}",
            code="build.files",
            hint="Free some space there, or make it writable, or name another place with --workspace.",
            file=error.filename,
        ) from error


def _inputs(
    loaded: LoadedRecipe,
    libraries: tuple[OperatorLibrary, ...],
    parts: tuple[Component, ...],
    simulated: SimulatedNpu | None,
    vendor: tuple[Path, ...],
    target: Target,
    host: HostTools,
    android: AndroidSettings | None,
    apps: AppParts | None,
    folder: Path,
    console: Console,
) -> Inputs:
    # Fetching or compiling it is slow, so it waits until nothing else is known to be missing.
    package = executorch.find(target, host.wanted, console)
    tools = Toolset(host.compiler, package, host.ninja, host.ndk)
    sources = read_sources(asset_dir("native"))
    # A process takes one OpenMP runtime, and an app may have one already: its library uses ExecuTorch's threads.
    openmp = loaded.recipe.build.openmp != "off" and apps is None
    files = dict(
        render_project(
            target,
            tools,
            parts,
            sources,
            libraries,
            openmp=openmp,
            simulated=simulated,
            android=android,
            cpu_flags=cpu_flags(loaded, target),
            apps=apps,
            upstream=host.upstream,
        )
    )
    fingerprint = build_fingerprint(loaded.recipe, target.name)
    shipped: tuple[RunnerSources | OperatorLibrary, ...] = (sources, *(one for one in libraries if not one.own))
    hashes = {f"{part.root.name}/{name}": sha256 for part in shipped for name, sha256 in part.hashes.items()}
    for more in (simulated, apps):
        hashes |= more.hashes if more is not None else {}
    hashes |= {f"vendor/{path.name}": file_sha256(path) for path in vendor}
    own = tuple(library for library in libraries if library.own)
    record = make_record(folder, files, tools, hashes, fingerprint, own=own, android=android)
    has_upstream = host.upstream is not None
    return Inputs(
        target, apps, openmp, parts, sources, libraries, simulated, vendor, tools, android, files, record, has_upstream
    )


def _planned(folder: Path, inputs: Inputs, options: BuildOptions) -> BuildResult:
    """What has to be done, each step with its reason; nothing when the build is current."""
    before = read_record(folder / RECORD)
    manifest = whole_build(folder)
    if not (options.clean or options.configure_only) and manifest is not None and before == inputs.record:
        return BuildResult(manifest, folder, current=True)
    plan = []
    configured = read_record(folder / BINARY_DIR / CONFIGURED)
    clean = _clean_reason(folder, configured, inputs, options)
    if clean is not None:
        plan.append(f"remove the build tree: {clean}")
    if clean is not None or configured is None:
        plan.append("configure" if clean is not None else "configure: there is no build tree")
    elif names := changed(configured.project, inputs.record.project):
        plan.append(f"configure: {', '.join(names)} changed")
    elif options.configure_only:
        plan.append("configure: asked for")
    if not options.configure_only:
        names = changed(before.content, inputs.record.content) if before is not None else []
        plan.append(f"compile: {', '.join(names)} changed" if names else "compile")
        plan.append("put the stage together and audit it")
    return BuildResult(None, folder, current=False, plan=tuple(plan))


def _clean_reason(folder: Path, configured: BuildRecord | None, inputs: Inputs, options: BuildOptions) -> str | None:
    """Why CMake's tree cannot be used any more, or None."""
    if not (folder / BINARY_DIR).exists():
        return None
    if options.clean:
        return "--clean"
    if configured is None:
        return "its configuration did not finish"
    if reasons := tree_changes(configured.tree, inputs.record.tree):
        return "; ".join(reasons)
    build_type = cmake.cache_value(folder / BINARY_DIR / "CMakeCache.txt", "CMAKE_BUILD_TYPE")
    return None if build_type == BUILD_TYPE else f"its cache says {build_type or 'no'} build type, not {BUILD_TYPE}"


def _resolved(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.recipe.yaml")


def _remove_leftovers(folder: Path, inputs: Inputs) -> None:
    """What a build that was killed has left half-written: the lock says that no other is at it."""
    for path in (*inputs.files, RECORD, MANIFEST, f"{BINARY_DIR}/{CONFIGURED}"):
        remove_unfinished((folder / path).parent, [Path(path).name])
    remove_unfinished(folder.parent, [_resolved(folder).name])
    for stage in folder.glob(".stage.*"):
        remove_tree(stage)


def _build(
    loaded: LoadedRecipe, folder: Path, inputs: Inputs, options: BuildOptions, plan: tuple[str, ...], console: Console
) -> BuildResult:
    problems = Problems()
    problems.attempt(cmake.verify)
    problems.attempt(ninja.verify)
    problems.raise_if_any()
    if not options.configure_only:
        # From here to its own replacement the old stage is outdated, and must not be taken for a current one.
        (folder / MANIFEST).unlink(missing_ok=True)
    _remove_leftovers(folder, inputs)
    write_resolved(loaded, _resolved(folder))
    own = tuple(library for library in inputs.libraries if library.own)
    env = {"ANDROID_NDK": str(inputs.tools.ndk.root)} if inputs.tools.ndk is not None else {}
    tree = Tree(folder, cmake.find(), inputs.target.name, console, own, env)
    for step in plan:
        if step.startswith("remove"):
            console.note(f"building from nothing: {step.partition(': ')[2]}")
            tree.remove()
    for name, text in inputs.files.items():
        write_if_changed(folder / name, text)
    if any(step.startswith("configure") for step in plan):
        with console.step(f"configure {inputs.target.name}"):
            tree.configured.unlink(missing_ok=True)
            tree.configure()
            inputs.record.write(tree.configured)
    checked = Checked(
        loaded,
        inputs.target,
        folder,
        inputs.files,
        inputs.programs,
        (*inputs.parts, *([upstream.DELEGATE] if inputs.upstream else [])),
        inputs.libraries,
        inputs.sources.root.parent,
        inputs.simulated,
        inputs.vendor,
        inputs.apps,
        api_level=inputs.android.api_level if inputs.android is not None else None,
    )
    use = check_commands(checked, tree.path, cpu_flags(loaded, inputs.target))
    if options.configure_only:
        return BuildResult(None, folder, current=False, plan=plan)
    with console.step(f"compile {inputs.target.name}"):
        tree.compile(options.jobs or len(os.sched_getaffinity(0)))
    with console.step("put together and audit"), tempfile.TemporaryDirectory(prefix=".stage.", dir=folder) as text:
        fresh = Path(text) / STAGE
        tree.install(fresh)
        archives = {library.name: tree.archive(library.name) for library in inputs.libraries}
        seen = check_stage(checked, fresh, archives, console)
        manifest = make_manifest(loaded, fresh, inputs, seen, use)
        remove_tree(folder / LIBRARY)
        if inputs.apps is not None:
            for_apps = fresh.with_name(LIBRARY)
            made = put_together(inputs.apps, fresh, seen, inputs.target, for_apps)
            manifest = manifest.model_copy(update={"library": made})
            for_apps.rename(folder / LIBRARY)
        remove_tree(folder / STAGE)
        fresh.rename(folder / STAGE)
    inputs.record.write(folder / RECORD)
    manifest.write(folder / MANIFEST)
    return BuildResult(manifest, folder, current=False, plan=plan)
