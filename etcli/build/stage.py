"""The build stage: recipe and target in, `build/<target>/stage/` with every program and library to be pushed and its manifest out."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from etcli import __version__
from etcli.build.android import AndroidSettings, android_settings, cpu_flags
from etcli.build.apps import LIBRARY, AppParts, app_parts, is_whole, put_together
from etcli.build.audit import Audit
from etcli.build.audit.cpu import CpuUse
from etcli.build.checking import Checked, check_commands, check_stage
from etcli.build.components import Component, components, operator_libraries, simulated_npu
from etcli.build.record import RECORD, BuildRecord, changed, make_record, read_record, tree_changes
from etcli.build.render import BINARY_DIR, BUILD_TYPE, Toolset, render_project
from etcli.build.sources import RunnerSources, read_sources
from etcli.build.tools import HostTools, find_host_tools
from etcli.build.tree import CONFIGURED, Tree
from etcli.build.vendor import vendor_libraries
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError, EtcliError, Problems
from etcli.common.files import remove_tree, write_if_changed
from etcli.common.hashing import file_sha256, value_sha256
from etcli.common.locks import exclusive
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest, CustomOperators, StagedFile
from etcli.output.console import Console
from etcli.recipe.custom_ops import shipped_operators
from etcli.recipe.fingerprint import build_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.recipe.resolved import write_resolved
from etcli.tables.operators import OperatorLibrary
from etcli.tables.simulated_npu import SimulatedNpu
from etcli.tables.targets import Target, known_target
from etcli.toolchain import cmake, executorch, ninja

STAGE = "stage"


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
    was done, or would be, in order, each step with its reason.
    """

    manifest: BuildManifest | None
    folder: Path
    current: bool
    plan: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Inputs:
    target: Target
    apps: AppParts | None
    openmp: bool
    parts: tuple[Component, ...]
    sources: RunnerSources
    libraries: tuple[OperatorLibrary, ...]
    simulated: SimulatedNpu | None
    vendor: tuple[Path, ...]
    tools: Toolset
    android: AndroidSettings | None
    files: dict[str, str]
    record: BuildRecord


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
    android = android_settings(loaded, target, libraries, apps.files if apps is not None else ())
    simulated = simulated_npu(loaded.recipe, asset_dir("native"))
    parts = components(loaded.recipe, libraries, simulated)
    tools = find_host_tools(
        loaded,
        target,
        options.ndk,
        android,
        parts,
        executorch_flag=options.executorch,
        simulated=simulated is not None,
        jobs=options.jobs,
    )
    if tools.ndk is not None:
        cmake.check_path(tools.ndk.root, "Move it, or name another NDK.")
    if options.dry_run and (first := executorch.first_step(target, tools.wanted)) is not None:
        return BuildResult(
            None, folder, current=False, plan=(first, "configure", "compile", "put the stage together and audit it")
        )
    inputs = _inputs(loaded, libraries, parts, simulated, target, tools, android, apps, folder, console)

    def waiting() -> None:
        console.note(f"waiting for another build in {folder}")

    if options.dry_run:
        return _planned(folder, inputs, options)
    for remark in tools.ndk.remarks() if tools.ndk is not None else ():
        console.note(remark)
    try:
        with exclusive(folder.parent / f".{target.name}.lock", on_wait=waiting):
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
    target: Target,
    host: HostTools,
    android: AndroidSettings | None,
    apps: AppParts | None,
    folder: Path,
    console: Console,
) -> _Inputs:
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
        )
    )
    fingerprint = build_fingerprint(loaded.recipe, target.name)
    shipped: tuple[RunnerSources | OperatorLibrary, ...] = (sources, *(one for one in libraries if not one.own))
    hashes = {f"{part.root.name}/{name}": sha256 for part in shipped for name, sha256 in part.hashes.items()}
    for more in (simulated, apps):
        hashes |= more.hashes if more is not None else {}
    vendor = vendor_libraries(loaded, target, console)
    hashes |= {f"vendor/{path.name}": file_sha256(path) for path in vendor}
    own = tuple(library for library in libraries if library.own)
    record = make_record(folder, files, tools, hashes, fingerprint, own=own, android=android)
    return _Inputs(target, apps, openmp, parts, sources, libraries, simulated, vendor, tools, android, files, record)


def _planned(folder: Path, inputs: _Inputs, options: BuildOptions) -> BuildResult:
    """What has to be done, each step with its reason; nothing when the build is current."""
    before = read_record(folder / RECORD)
    manifest = _whole(folder)
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


def _clean_reason(folder: Path, configured: BuildRecord | None, inputs: _Inputs, options: BuildOptions) -> str | None:
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


def _build(
    loaded: LoadedRecipe, folder: Path, inputs: _Inputs, options: BuildOptions, plan: tuple[str, ...], console: Console
) -> BuildResult:
    problems = Problems()
    problems.attempt(cmake.verify)
    problems.attempt(ninja.verify)
    problems.raise_if_any()
    if not options.configure_only:
        # From here to its own replacement the old stage is outdated, and must not be taken for a current one.
        (folder / MANIFEST).unlink(missing_ok=True)
    write_resolved(loaded, folder.with_name(f"{folder.name}.recipe.yaml"))
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
        tuple(inputs.sources.programs),
        inputs.parts,
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
        manifest = _manifest(loaded, fresh, inputs, seen, use)
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


def _whole(folder: Path) -> BuildManifest | None:
    """The manifest, if the stage holds exactly what it says."""
    try:
        manifest = BuildManifest.read(folder / MANIFEST)
        stage = folder / STAGE
        if sorted(path.name for path in stage.iterdir()) != sorted(file.path for file in manifest.stage):
            return None
        for file in manifest.stage:
            path = stage / file.path
            executable = bool(path.stat().st_mode & 0o100)
            if path.stat().st_size != file.size or executable != file.executable or file_sha256(path) != file.sha256:
                return None
        return manifest if is_whole(folder, manifest) else None
    except (OSError, EtcliError):
        return None


def _manifest(loaded: LoadedRecipe, stage: Path, inputs: _Inputs, seen: Audit, use: CpuUse) -> BuildManifest:
    files = []
    for path in sorted(stage.iterdir()):
        executable = path.name in inputs.sources.programs
        path.chmod(0o755 if executable else 0o644)
        files.append(
            StagedFile(
                path=path.name,
                size=path.stat().st_size,
                sha256=file_sha256(path),
                executable=executable,
                reason=seen.reasons[path.name],
                elf=seen.facts[path.name],
            )
        )
    record, package = inputs.record, inputs.tools.executorch
    return BuildManifest(
        name=loaded.recipe.name,
        recipe_sha256=build_fingerprint(loaded.recipe, inputs.target.name),
        etcli=__version__,
        target=inputs.target.name,
        machine=inputs.target.machine,
        build_type=BUILD_TYPE,
        executorch_version=package.version,
        executorch_provider=package.provider,
        compiler=inputs.tools.compiler.description,
        cmake=cmake.verify().version,
        ndk=inputs.tools.ndk.revision if inputs.tools.ndk is not None else None,
        api_level=inputs.android.api_level if inputs.android is not None else None,
        stl=inputs.android.stl if inputs.android is not None else None,
        sources_sha256=value_sha256([_compiled(record), record.project]),
        custom_ops=tuple(_custom(inputs, library) for library in inputs.libraries if _is_custom(loaded, library)),
        cpu_features=use.needed,
        dispatched=dict(use.dispatched),
        operators=seen.operators,
        backends=seen.backends,
        program=package.program_identifier(),
        simulated=inputs.simulated is not None,
        stage=tuple(files),
    )


def _compiled(record: BuildRecord) -> dict[str, str]:
    """What was compiled, by its hashes."""
    return {name: value for name, value in record.content.items() if name not in ("etcli", "recipe")}


def _is_custom(loaded: LoadedRecipe, library: OperatorLibrary) -> bool:
    return library.own or library.root.name in shipped_operators(loaded.recipe)


def _custom(inputs: _Inputs, library: OperatorLibrary) -> CustomOperators:
    return CustomOperators(
        name=library.name,
        operators=library.operators,
        openmp=library.openmp and inputs.openmp,
        shipped=None if library.own else library.root.name,
        sha256=library.sha256,
    )
