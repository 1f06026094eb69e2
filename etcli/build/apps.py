"""The runner as a library for apps: what is built for it, whether it shows its interface alone, and the folder that an app takes in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.build.audit import Audit
from etcli.build.audit.closure import loaded_by
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError, Problem, RecipeError
from etcli.common.hashing import file_sha256
from etcli.manifests.base import FileEntry
from etcli.manifests.build import BuildManifest, LibraryForApps
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.app_library import JAVA, AppLibraries, AppLibrary, read_app_libraries
from etcli.tables.targets import Target
from etcli.toolchain.elf import read_dynamic_symbols
from etcli.toolchain.jdk import APT, jni_headers

LIBRARY = "library"
"""Folder beside the stage: `jniLibs/<abi>/` with the libraries and all that they need, `include/`, `java/`, R8's rules."""

JNI_VARIABLE = "ETCLI_JNI_INCLUDE_DIRS"
"""The CMake variable that says where a JDK's headers are."""

_SHOWN = 5


@dataclass(frozen=True)
class AppParts:
    """What a build for apps makes. `jni` are the folders of a JDK's headers: none for Android, whose NDK has them."""

    libraries: AppLibraries
    jni: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The libraries' file names, as they stand in the stage."""
        return tuple(library.file for library in self.libraries.all)

    @property
    def hashes(self) -> Mapping[str, str]:
        """Of their sources, by path relative to `native/`."""
        return {
            f"{library.folder}/{name}": sha256
            for library in self.libraries.all
            for name, sha256 in library.hashes.items()
        }


def app_parts(loaded: LoadedRecipe, target: Target, console: Console) -> AppParts:
    """The parts of a build for apps; without the binding to Java, and with a note, where this machine cannot compile it.

    Raises:
        RecipeError: code `build.library`: the recipe is for a runner that is not ours.
        BuildError: the sources are not as described.
    """
    if loaded.recipe.run.runner != "etcli":
        place = loaded.location("run.runner")
        raise RecipeError(
            f"--library makes a library of etcli's own runner, the recipe is for the {loaded.recipe.run.runner} runner",
            code="build.library",
            hint="Export and build with run.runner: etcli.",
            file=place.file,
            line=place.line,
            column=place.column,
        )
    native = asset_dir("native")
    if target.system == "android":
        return AppParts(read_app_libraries(native))
    headers = jni_headers()
    if headers is None:
        console.note(f"no JDK on this machine: the library is built without its binding to Java ({APT} brings one)")
    return AppParts(read_app_libraries(native, binding=headers is not None), headers or ())


def export_problems(stage: Path, libraries: AppLibraries) -> list[Problem]:
    """What a library shows that is not its interface, or does not show that is: an app may hold another ExecuTorch, and C++ libraries of its own."""
    found = []
    for library in libraries.all:
        path = stage / library.file
        if not path.is_file():
            continue  # which the audit tells
        shown = _functions(path)
        for names, what in ((shown - library.functions, "shows"), (library.functions - shown, "does not show")):
            if names:
                found.append(
                    BuildError.problem(
                        f"stage/{library.file} {what} {_listed(sorted(names))}",
                        code="audit.exports",
                        hint=f"It has to show what {library.root / (library.headers or ('library.yaml',))[0]} says, through "
                        f"{library.root / library.exports}, and nothing else.",
                    )
                )
    return found


def _functions(path: Path) -> set[str]:
    """Names in the dynamic symbol table that the file defines; names of versions are none."""
    defined = read_dynamic_symbols(path, error=BuildError).defined
    return {name for name in defined if not name.startswith("ETCLI_RUNNER_")}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def put_together(parts: AppParts, stage: Path, seen: Audit, target: Target, folder: Path) -> LibraryForApps:
    """Fill the new folder `folder` with what an app takes in, from an audited stage: the libraries, and those that they are linked with or open."""
    libraries = folder / "jniLibs" / target.abi
    libraries.mkdir(parents=True)
    for name in sorted(loaded_by([*parts.files, *seen.opened], seen.facts)):
        shutil.copyfile(stage / name, libraries / name)
    for library in parts.libraries.all:
        for source, place in _sources(library):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / place)
    return LibraryForApps(api=parts.libraries.api, files=_entries(folder))


def _sources(library: AppLibrary) -> list[tuple[Path, str]]:
    copied = [(library.root / name, f"include/{name}") for name in library.headers]
    copied += [(library.root / JAVA / name, f"{JAVA}/{name}") for name in library.java]
    return copied + ([(library.root / library.rules, library.rules)] if library.rules is not None else [])


def is_whole(build: Path, manifest: BuildManifest) -> bool:
    """Whether the folder for apps is exactly as the manifest says: there, or not."""
    folder = build / LIBRARY
    if manifest.library is None:
        return not folder.exists()
    return folder.is_dir() and _entries(folder) == manifest.library.files


def _entries(folder: Path) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=file_sha256(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
