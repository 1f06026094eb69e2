"""A build's manifest: made when the audit has passed, and compared with what is there before a build is taken for current."""

from __future__ import annotations

from pathlib import Path

from etcli import __version__
from etcli.build.apps import is_whole
from etcli.build.audit import Audit
from etcli.build.audit.cpu import CpuUse
from etcli.build.inputs import Inputs
from etcli.build.record import BuildRecord
from etcli.build.render import BUILD_TYPE
from etcli.common.errors import EtcliError
from etcli.common.hashing import file_sha256, value_sha256
from etcli.manifests.build import BuildManifest, CustomOperators, StagedFile
from etcli.recipe.custom_ops import shipped_operators
from etcli.recipe.fingerprint import build_fingerprint
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain import cmake

STAGE = "stage"
"""Folder inside the build folder of everything that is pushed."""


def whole_build(folder: Path) -> BuildManifest | None:
    """The manifest of the build in `folder`, if the stage holds exactly what it says."""
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


def make_manifest(stage: Path, inputs: Inputs, seen: Audit, use: CpuUse) -> BuildManifest:
    """The manifest of the build in `stage`, of which the audit has `seen` and the commands have told the CPUs' `use`; modes of files are set."""
    files = []
    for path in sorted(stage.iterdir()):
        executable = path.name in inputs.programs
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
    record, package, asked = inputs.record, inputs.tools.executorch, inputs.asked
    loaded = asked.loaded
    return BuildManifest(
        name=loaded.recipe.name,
        recipe_sha256=build_fingerprint(loaded.recipe, asked.target.name),
        etcli=__version__,
        target=asked.target.name,
        machine=asked.target.machine,
        build_type=BUILD_TYPE,
        executorch_version=package.version,
        executorch_provider=package.provider,
        compiler=inputs.tools.compiler.description,
        cmake=cmake.verify().version,
        ndk=inputs.tools.ndk.revision if inputs.tools.ndk is not None else None,
        api_level=asked.android.api_level if asked.android is not None else None,
        stl=asked.android.stl if asked.android is not None else None,
        sources_sha256=value_sha256([_compiled(record), record.project]),
        custom_ops=tuple(_custom(inputs, library) for library in asked.libraries if _is_custom(loaded, library)),
        cpu_features=use.needed,
        dispatched=dict(use.dispatched),
        operators=seen.operators,
        backends=seen.backends,
        program=package.program_identifier(),
        simulated=asked.simulated is not None,
        stage=tuple(files),
    )


def _compiled(record: BuildRecord) -> dict[str, str]:
    """What was compiled, by its hashes."""
    return {name: value for name, value in record.content.items() if name not in ("etcli", "recipe")}


def _is_custom(loaded: LoadedRecipe, library: OperatorLibrary) -> bool:
    return library.own or library.root.name in shipped_operators(loaded.recipe)


def _custom(inputs: Inputs, library: OperatorLibrary) -> CustomOperators:
    return CustomOperators(
        name=library.name,
        operators=library.operators,
        openmp=library.openmp and inputs.asked.openmp,
        shipped=None if library.own else library.root.name,
        sha256=library.sha256,
    )
