"""The build stage: recipe and target in, `build/<target>/stage/` with every program and library to be pushed and its manifest out."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from etcli.build import upstream
from etcli.build.android import cpu_flags
from etcli.build.apps import LIBRARY, put_together
from etcli.build.asked import Asked, asked_of
from etcli.build.checking import Checked, check_commands, check_stage
from etcli.build.described import STAGE, make_manifest, whole_build
from etcli.build.flags import check_flags
from etcli.build.inputs import Inputs, make_inputs
from etcli.build.record import RECORD, BuildRecord, changed, read_record, tree_changes
from etcli.build.render import BINARY_DIR, BUILD_TYPE
from etcli.build.tools import HostTools, find_host_tools
from etcli.build.tree import CONFIGURED, Tree
from etcli.build.vendor import vendor_libraries
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError, Problems, ToolError
from etcli.common.files import remove_tree, remove_unfinished, write_if_changed
from etcli.common.locks import exclusive, holder
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.recipe.completing import completed_hints
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.recipe.resolved import write_resolved
from etcli.tables.targets import known_target
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
    asked = asked_of(loaded, target, folder, asset_dir("native"), console, library=options.library)
    tools, vendor = _found(asked, options, console)
    if options.dry_run:
        uses = (*([tools.ndk.chosen()] if tools.ndk is not None else []), executorch.chosen(target, tools.wanted))
        if (first := executorch.first_step(target, tools.wanted)) is not None:
            plan = (first, "configure", "compile", "put the stage together and audit it")
            return BuildResult(None, folder, current=False, plan=plan, uses=uses)
        return replace(_planned(make_inputs(asked, tools, vendor, console), options), uses=uses)
    inputs = make_inputs(asked, tools, vendor, console)
    for remark in tools.ndk.remarks() if tools.ndk is not None else ():
        console.note(remark)
    lock = workspace.build_lock(target.name)

    def waiting() -> None:
        console.note(f"waiting for another process that uses {folder}: {holder(lock)}")

    try:
        with (
            exclusive(lock, on_wait=waiting, what=f"build of {loaded.recipe.name} for {target.name}"),
            completed_hints(loaded, workspace, {"build": _words(options, target.name)}),
        ):
            planned = _planned(inputs, options)
            if planned.current:
                console.note(f"build for {target.name}: current")
                return planned
            return _build(inputs, options, planned.plan, console)
    except OSError as error:
        raise BuildError(
            f"cannot write the build in {folder}: {error.strerror or error}",
            code="build.files",
            hint="Free some space there, or make it writable, or name another place with --workspace.",
            file=error.filename,
        ) from error


def _words(options: BuildOptions, target: str) -> tuple[str, ...]:
    """The options that a command that builds the same again has to have."""
    named = (("--ndk", options.ndk), ("--executorch", options.executorch))
    places = tuple(word for flag, path in named if path is not None for word in (flag, str(path)))
    return ("--target", target, *places, *(("--library",) if options.library else ()))


def _found(asked: Asked, options: BuildOptions, console: Console) -> tuple[HostTools, tuple[Path, ...]]:
    """What this machine has for the build, and MediaTek's libraries to be staged; or everything that it lacks, at once."""
    loaded, target = asked.loaded, asked.target
    problems = Problems()
    vendor = problems.attempt(lambda: vendor_libraries(loaded, target, console))
    tools = problems.attempt(
        lambda: find_host_tools(
            loaded,
            target,
            options.ndk,
            asked.android,
            asked.parts,
            executorch_flag=options.executorch,
            simulated=asked.simulated is not None,
            jobs=options.jobs,
        )
    )
    if vendor is None or tools is None:
        raise ToolError.many(problems.found)
    if tools.ndk is not None:
        cmake.check_path(tools.ndk.root, "Move it, or name another NDK.")
    check_flags(asked.libraries, tools.compiler, asked.android)
    return tools, vendor


def _planned(inputs: Inputs, options: BuildOptions) -> BuildResult:
    """What has to be done, each step with its reason; nothing when the build is current."""
    folder = inputs.asked.folder
    before = read_record(folder / RECORD)
    manifest = whole_build(folder)
    if not (options.clean or options.configure_only) and manifest is not None and before == inputs.record:
        return BuildResult(manifest, folder, current=True)
    plan = []
    configured = read_record(folder / BINARY_DIR / CONFIGURED)
    clean = _clean_reason(configured, inputs, options)
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


def _clean_reason(configured: BuildRecord | None, inputs: Inputs, options: BuildOptions) -> str | None:
    """Why CMake's tree cannot be used any more, or None."""
    tree = inputs.asked.folder / BINARY_DIR
    if not tree.exists():
        return None
    if options.clean:
        return "--clean"
    if configured is None:
        return "its configuration did not finish"
    if reasons := tree_changes(configured.tree, inputs.record.tree):
        return "; ".join(reasons)
    build_type = cmake.cache_value(tree / "CMakeCache.txt", "CMAKE_BUILD_TYPE")
    return None if build_type == BUILD_TYPE else f"its cache says {build_type or 'no'} build type, not {BUILD_TYPE}"


def _resolved(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.recipe.yaml")


def _remove_leftovers(inputs: Inputs) -> None:
    """What a build that was killed has left half-written: the lock says that no other is at it."""
    folder = inputs.asked.folder
    for path in (*inputs.files, RECORD, MANIFEST, f"{BINARY_DIR}/{CONFIGURED}"):
        remove_unfinished((folder / path).parent, [Path(path).name])
    remove_unfinished(folder.parent, [_resolved(folder).name])
    for stage in folder.glob(".stage.*"):
        remove_tree(stage)


def _build(inputs: Inputs, options: BuildOptions, plan: tuple[str, ...], console: Console) -> BuildResult:
    asked, folder = inputs.asked, inputs.asked.folder
    problems = Problems()
    problems.attempt(cmake.verify)
    problems.attempt(ninja.verify)
    problems.raise_if_any()
    if not options.configure_only:
        # From here to its own replacement the old stage is outdated, and must not be taken for a current one.
        (folder / MANIFEST).unlink(missing_ok=True)
    _remove_leftovers(inputs)
    write_resolved(asked.loaded, _resolved(folder))
    env = {"ANDROID_NDK": str(inputs.tools.ndk.root)} if inputs.tools.ndk is not None else {}
    tree = Tree(folder, cmake.find(), asked.target.name, console, asked.own, env)
    _configure(tree, inputs, plan, console)
    checked = _checked(inputs)
    use = check_commands(checked, tree.path, cpu_flags(asked.loaded, asked.target))
    if options.configure_only:
        return BuildResult(None, folder, current=False, plan=plan)
    with console.step(f"compile {asked.target.name}"):
        tree.compile(options.jobs or len(os.sched_getaffinity(0)))
    with console.step("put together and audit"), tempfile.TemporaryDirectory(prefix=".stage.", dir=folder) as text:
        fresh = Path(text) / STAGE
        tree.install(fresh)
        archives = {library.name: tree.archive(library.name) for library in asked.libraries}
        seen = check_stage(checked, fresh, archives, console)
        manifest = make_manifest(fresh, inputs, seen, use)
        remove_tree(folder / LIBRARY)
        if asked.apps is not None:
            for_apps = fresh.with_name(LIBRARY)
            made = put_together(asked.apps, fresh, seen, asked.target, for_apps)
            manifest = manifest.model_copy(update={"library": made})
            for_apps.rename(folder / LIBRARY)
        remove_tree(folder / STAGE)
        fresh.rename(folder / STAGE)
    inputs.record.write(folder / RECORD)
    manifest.write(folder / MANIFEST)
    return BuildResult(manifest, folder, current=False, plan=plan)


def _configure(tree: Tree, inputs: Inputs, plan: tuple[str, ...], console: Console) -> None:
    """Write the project, and do what `plan` says of CMake's tree up to its configuration."""
    for step in plan:
        if step.startswith("remove"):
            console.note(f"building from nothing: {step.partition(': ')[2]}")
            tree.remove()
    for name, text in inputs.files.items():
        write_if_changed(inputs.asked.folder / name, text)
    if any(step.startswith("configure") for step in plan):
        with console.step(f"configure {inputs.asked.target.name}"):
            tree.configured.unlink(missing_ok=True)
            tree.configure()
            inputs.record.write(tree.configured)


def _checked(inputs: Inputs) -> Checked:
    asked = inputs.asked
    return Checked(
        asked.loaded,
        asked.target,
        asked.folder,
        inputs.files,
        inputs.programs,
        (*asked.parts, *([upstream.DELEGATE] if inputs.upstream else [])),
        asked.libraries,
        asked.native,
        asked.simulated,
        inputs.vendor,
        asked.apps,
        api_level=asked.android.api_level if asked.android is not None else None,
    )
