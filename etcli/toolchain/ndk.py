"""Android's NDK: found in one order, read and checked before CMake starts, or explained."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem, Problems, ToolError
from etcli.common.paths import written_path
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.ndk import PageSizeMeans, ndk_facts, release_name, revision_numbers
from etcli.tables.targets import Target
from etcli.toolchain.chosen import Chosen

KEY = "build.ndk"
FLAG = "--ndk"

_PROPERTIES = "source.properties"
_REVISION = re.compile(r"^\s*Pkg\.Revision\s*=\s*(\d+(?:\.\d+)+\S*)\s*$", re.MULTILINE)
_GET = (
    "Install one (Android Studio's SDK Manager, or: sdkmanager --install 'ndk;VERSION'; {recommended} or newer is recommended) and name its folder "
    f"with {FLAG}, {KEY} in the recipe, or $ANDROID_NDK."
)


@dataclass(frozen=True)
class Ndk:
    """A usable NDK.

    `root` is its absolute folder, `revision` the whole Pkg.Revision (`27.2.12479018`), `said_by` what named it (`--ndk`, `build.ndk`,
    `$ANDROID_NDK`, ...) and `overruled` what else names another one, as (what, folder) in the order of precedence. `host` is the folder name
    of its programs for this machine, `triple` the target's, `api_levels` those that its libraries are there for, rising.
    """

    root: Path
    revision: str
    said_by: str
    host: str
    triple: str
    api_levels: tuple[int, ...]
    overruled: tuple[tuple[str, Path], ...] = ()

    @property
    def major(self) -> int:
        """The release's number, 27 of r27c."""
        return revision_numbers(self.revision)[0]

    @property
    def release(self) -> str:
        """The name that the release goes by, `r27c`."""
        return release_name(self.revision)

    @property
    def toolchain_file(self) -> Path:
        """The CMake toolchain file."""
        return self.root / ndk_facts().toolchain_file

    @property
    def compiler(self) -> Path:
        """The C++ compiler, for every target of the NDK."""
        return self._path(ndk_facts().compiler)

    @property
    def page_size_means(self) -> PageSizeMeans:
        """How programs get segments for pages of 16 KiB."""
        return ndk_facts().page_size_means(self.revision)

    def remarks(self) -> Iterator[str]:
        """What to tell the user of the choice: which of several won, and that a newer one is recommended."""
        for what, folder in self.overruled:
            yield f"{self.said_by} wins over {what}: NDK {self.root}, not {folder}"
        recommended = ndk_facts().recommended
        if revision_numbers(self.revision) < revision_numbers(recommended):
            yield f"NDK {self.release} ({self.revision}): {release_name(recommended)} or newer is recommended"

    def chosen(self) -> Chosen:
        """Which it is, where it was found and by which rule."""
        order = ", ".join((FLAG, KEY, *(f"${name}" for name in ndk_facts().variables)))
        newest = f"the newest of ${'/ndk, $'.join(ndk_facts().sdk_variables)}/ndk"
        others = "".join(f"; {what} names {folder}, which is not used" for what, folder in self.overruled)
        why = f"named by {self.said_by}, the first that is there of {order}, and {newest}{others}"
        return Chosen(f"Android NDK {self.release} ({self.revision})", self.root, why)

    def check_api_level(self, level: int) -> None:
        """Whether it has libraries for an Android API level.

        Raises:
            ToolError: code `ndk.api_level`.
        """
        if level not in self.api_levels:
            raise ToolError(
                f"NDK {self.release} in {self.root} has no libraries for API level {level}: it has {self.api_levels[0]} to {self.api_levels[-1]}",
                code="ndk.api_level",
                hint="Set build.api_level to one that it has, or take a newer NDK.",
                file=self.root,
            )

    def _path(self, pattern: str) -> Path:
        return self.root / pattern.format(host=self.host, triple=self.triple)


@dataclass(frozen=True)
class _Named:
    """A folder that something named, as it was written and made absolute. `fixed`: it has to be an NDK, being named as one."""

    said_by: str
    root: Path
    fixed: bool = True


def find_ndk(loaded: LoadedRecipe, target: Target, flag: Path | None = None) -> Ndk:
    """The NDK: that of `--ndk` (`flag`), else of `build.ndk`, else of `$ANDROID_NDK`, `$ANDROID_NDK_HOME`, `$ANDROID_NDK_ROOT`, else the newest
    below an Android SDK's `ndk/`. What is named and is no usable NDK is an error, never passed over in silence.

    Raises:
        ToolError: `ndk.missing`: none is named; or every fault of the one that is: `ndk.not_found`, `ndk.revision`, `ndk.too_old`,
            `ndk.too_old_for_vendor`, `ndk.layout`, `ndk.host`.
    """
    named = list(_named(loaded, flag))
    if not named:
        facts = ndk_facts()
        places = (
            FLAG,
            KEY,
            *(f"${name}" for name in facts.variables),
            *(f"${name}/ndk" for name in facts.sdk_variables),
        )
        raise ToolError(
            f"no Android NDK is named for target {target.name}: looked at {', '.join(places)}",
            code="ndk.missing",
            hint=_get(),
        )
    chosen = named[0]
    overruled: dict[Path, tuple[str, Path]] = {}
    for other in named[1:]:
        if other.fixed and other.root.resolve() != chosen.root.resolve():
            overruled.setdefault(other.root.resolve(), (other.said_by, other.root))
    return _checked(loaded, target, chosen, tuple(overruled.values()))


def _named(loaded: LoadedRecipe, flag: Path | None) -> Iterator[_Named]:
    facts = ndk_facts()
    if flag is not None:
        yield _Named(FLAG, written_path(flag))
    if loaded.recipe.build.ndk is not None:
        yield _Named(KEY, written_path(loaded.resolve_path(loaded.recipe.build.ndk)))
    for name in facts.variables:
        if value := os.environ.get(name):
            yield _Named(f"${name}", written_path(value))
    for name in facts.sdk_variables:
        if not (value := os.environ.get(name)):
            continue
        folder = written_path(value) / "ndk"
        newest = _newest(folder)
        if newest is not None:
            yield _Named(f"${name}/ndk", newest, fixed=False)


def _checked(loaded: LoadedRecipe, target: Target, named: _Named, overruled: tuple[tuple[str, Path], ...]) -> Ndk:
    root = named.root
    place = loaded.location(KEY) if named.said_by == KEY else None

    def problem(code: str, message: str, hint: str) -> Problem:
        file, line, column = (place.file, place.line, place.column) if place is not None else (root, None, None)
        return ToolError.problem(message, code=f"ndk.{code}", hint=hint, file=file, line=line, column=column)

    if not root.is_dir():
        raise ToolError.many([problem("not_found", f"{named.said_by}: there is no folder {root}", _get())])
    problems = Problems()
    revision = _revision(root)
    if revision is None:
        why = "has no Pkg.Revision" if (root / _PROPERTIES).is_file() else "is not there"
        inside = _newest(root / "ndk") or _newest(root)
        hint = (
            f"It holds NDKs: name {inside}."
            if inside is not None
            else "Name the NDK's own folder, the one with that file."
        )
        problems.add(problem("revision", f"{named.said_by}: {root} is no NDK: {_PROPERTIES} {why}", hint))
    else:
        for found in _revision_problems(loaded, revision):
            problems.add(problem(found[0], f"{named.said_by}: NDK {root} is {found[1]}", found[2]))
    host = ndk_facts().hosts.get(platform.system(), "")
    prebuilt = root / "toolchains" / "llvm" / "prebuilt"
    if revision is not None and prebuilt.is_dir() and not (prebuilt / host).is_dir():
        there = ", ".join(sorted(path.name for path in prebuilt.iterdir())) or "none"
        message = f"{named.said_by}: NDK {root} has programs for {there}, this machine is {host or platform.system()}"
        problems.add(problem("host", message, "Download the NDK for this system."))
    elif revision is not None:
        absent = [f"{name} ({what})" for name, what in _layout(target, host) if not (root / name).exists()]
        if absent:
            message = f"{named.said_by}: NDK {root} lacks {', '.join(absent)}"
            problems.add(
                problem("layout", message, "It is incomplete, or not an NDK: install it again, or name another.")
            )
    problems.raise_if_any(ToolError)
    levels = (root / ndk_facts().libraries.format(host=host, triple=target.triple)).glob("[0-9]*")
    api_levels = tuple(sorted(int(path.name) for path in levels if path.name.isdigit()))
    if not api_levels:
        message = f"{named.said_by}: NDK {root} has libraries of no API level for {target.triple}"
        raise ToolError.many([problem("layout", message, "Install it again, or name another.")])
    return Ndk(root, revision or "", named.said_by, host, target.triple, api_levels, overruled)


def _layout(target: Target, host: str) -> Iterator[tuple[str, str]]:
    """Files and folders, relative to the NDK, with what each is."""
    facts = ndk_facts()
    patterns = {
        facts.toolchain_file: "the CMake toolchain file",
        facts.compiler: "the C++ compiler",
        facts.strip: "the symbol stripper",
        **facts.files,
        facts.libraries: f"the system's libraries for {target.triple}",
        f"{facts.libraries}/{facts.runtime}": "the shared C++ runtime",
    }
    for pattern, what in patterns.items():
        yield pattern.format(host=host, triple=target.triple), what


def _revision_problems(loaded: LoadedRecipe, revision: str) -> Iterator[tuple[str, str, str]]:
    """The code, what is wrong, and the remedy."""
    facts, recipe = ndk_facts(), loaded.recipe
    numbers = revision_numbers(revision)
    hint = f"Take {release_name(facts.recommended)} or newer. {_get()}"
    if numbers < revision_numbers(facts.minimum):
        yield (
            "too_old",
            f"{release_name(revision)} ({revision}), {release_name(facts.minimum)} is the oldest usable",
            hint,
        )
    elif _for_vendor(loaded) and numbers < revision_numbers(facts.vendor):
        why = "runner: mtk" if recipe.run.runner == "mtk" else "backend: neuron"
        message = (
            f"{release_name(revision)} ({revision}), MediaTek's NPU ({why}) needs {release_name(facts.vendor)} or newer"
        )
        yield "too_old_for_vendor", message, hint


def _for_vendor(loaded: LoadedRecipe) -> bool:
    return loaded.recipe.export.backend == "neuron" or loaded.recipe.run.runner == "mtk"


def _newest(folder: Path) -> Path | None:
    """The NDK of the highest revision in `folder`, as an SDK's `ndk/` has them side by side."""
    # An installation that broke off has no such file yet.
    found = [path for path in sorted(folder.glob("*")) if _revision(path) is not None]
    return max(found, key=lambda path: revision_numbers(_revision(path) or ""), default=None)


def _revision(root: Path) -> str | None:
    try:
        text = (root / _PROPERTIES).read_text(encoding="utf-8", errors="replace")[:65536]
    except OSError:
        return None
    found = _REVISION.search(text)
    return found[1] if found else None


def _get() -> str:
    return _GET.format(recommended=release_name(ndk_facts().recommended))
