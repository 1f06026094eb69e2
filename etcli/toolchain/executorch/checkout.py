"""A checkout of ExecuTorch's repository: verified with Git before anything is compiled, every fault with its remedy."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem, Problems, ToolError
from etcli.common.hashing import value_sha256
from etcli.common.process import Completed, run
from etcli.toolchain.executorch.wheel import installed_release
from etcli.toolchain.programs import apt_hint, on_path

_NAME = "executorch"
_VERSION = re.compile(r"\s*((\d+)\.(\d+)\.(\d+)\S*)\s*")
_SECONDS = 120.0
_STATUS = re.compile(r"(?P<mark>[ +U-])(?P<commit>[0-9a-f]{7,64}) (?P<path>.+?)(?: \([^()]*\))?")


@dataclass(frozen=True)
class Checkout:
    """A checkout that can be compiled.

    `release` is the number in its version.txt (`1.5.0`), `commit` its HEAD; `changes` is empty for a clean tree, else a hash of all that
    differs from HEAD, submodules' commits included.
    """

    root: Path
    release: str
    commit: str
    changes: str


def clone_command() -> str:
    """The command that makes a checkout of the release that exports the programs here: a runner of another may not read them."""
    branch = ""
    with contextlib.suppress(ToolError):
        branch = f" --branch v{installed_release()}"
    return f"git clone --recurse-submodules{branch} https://github.com/pytorch/executorch"


def is_checkout(root: Path) -> bool:
    """Whether `root` looks like ExecuTorch's source tree."""
    return (root / "version.txt").is_file() and (root / "CMakeLists.txt").is_file()


def read_checkout(root: Path, submodules: Sequence[str]) -> Checkout:
    """The checkout in `root`, with these submodules checked out.

    Raises:
        ToolError: `git.missing`; or every fault of it, at once: `executorch.no_checkout`, `executorch.folder_name`, `executorch.git`,
            `executorch.submodules`.
    """
    if not is_checkout(root):
        raise ToolError(
            f"{root} is no checkout of ExecuTorch: {'it lacks version.txt or CMakeLists.txt' if root.is_dir() else 'there is no such folder'}",
            code="executorch.no_checkout",
            hint=f"Make one: {clone_command()}, or use from: prefix for an installation.",
        )
    if on_path("git") is None:
        raise ToolError("git was not found, and a checkout is read with it", code="git.missing", hint=apt_hint("git"))
    problems = Problems()
    version = _VERSION.fullmatch((root / "version.txt").read_text(encoding="utf-8", errors="replace"))
    if version is None:
        problems.add(_problem("no_checkout", f"{root / 'version.txt'} holds no version", "Undo the change to it."))
    if root.resolve().name != _NAME:
        problems.add(
            _problem(
                "folder_name",
                f"the checkout stands in {root.resolve()}, and ExecuTorch's sources include one another as executorch/...",
                f"Rename its folder to {_NAME}.",
            )
        )
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top.ok or Path(top.stdout.strip()).resolve() != root.resolve():
        said = top.stderr.strip().splitlines()
        why = said[0].removeprefix("fatal: ") if said else f"it belongs to the repository in {top.stdout.strip()}"
        problems.add(
            _problem(
                "git",
                f"{root} is no Git repository that can be read: {why}",
                f"Archives of the repository lack its submodules: make a checkout with {clone_command()}"
                if "not a git repository" in why
                else "Run git status there and do what it says.",
            )
        )
    else:
        for problem in _submodule_problems(root, submodules):
            problems.add(problem)
    problems.raise_if_any(ToolError)
    commit = _git(root, "rev-parse", "HEAD").stdout.strip()
    return Checkout(root, ".".join(version.group(2, 3, 4)) if version else "", commit, _changes(root))


def _submodule_problems(root: Path, wanted: Sequence[str]) -> Iterator[Problem]:
    listed = _git(root, "submodule", "status", "--", *wanted)
    states = {}
    for line in listed.stdout.splitlines():
        if (match := _STATUS.fullmatch(line)) is not None:
            states[match["path"]] = match["mark"]
    # What the repository does not have as a submodule any more stands in it as plain files, or is of no use.
    absent = [path for path in wanted if states.get(path) == "-"]
    if not listed.ok and not states:
        # One unknown path fails the whole question.
        absent = [path for path in wanted if (root / path).is_dir() and not any((root / path).iterdir())]
    if absent:
        command = shlex.join(["git", "-C", str(root), "submodule", "update", "--init", "--recursive", *absent])
        yield _problem("submodules", f"{root} lacks submodules: {', '.join(absent)} not checked out", command)
    if conflicts := [path for path, mark in states.items() if mark == "U"]:
        yield _problem("submodules", f"{root} has merge conflicts in {', '.join(conflicts)}", "Resolve them.")


def moved_submodules(root: Path, wanted: Sequence[str]) -> list[str]:
    """Submodules that stand at another commit than the checkout asks for."""
    lines = _git(root, "submodule", "status", "--", *wanted).stdout.splitlines()
    return [match["path"] for line in lines if (match := _STATUS.fullmatch(line)) is not None and match["mark"] == "+"]


def _changes(root: Path) -> str:
    """A hash of what differs from HEAD; empty where nothing does. New files count by name, size and time."""
    status = _git(root, "status", "--porcelain=v1", "-z", "--ignore-submodules=untracked").stdout
    if not status:
        return ""
    untracked = [entry[3:] for entry in status.split("\0") if entry.startswith("?? ")]
    stamps = []
    for name in sorted(untracked):
        facts = (root / name).lstat() if (root / name).exists() else None
        stamps.append([name, facts.st_size, facts.st_mtime_ns] if facts is not None else [name])
    return value_sha256([_git(root, "diff", "HEAD", "--submodule=diff").stdout, stamps])


def _git(root: Path, *arguments: str) -> Completed:
    env = {
        "GIT_DIR": None,
        "GIT_WORK_TREE": None,
        "GIT_INDEX_FILE": None,
        "LC_ALL": "C.UTF-8",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    return run(["git", "-C", root, "-c", "core.fsmonitor=false", *arguments], env=env, timeout=_SECONDS)


def _problem(code: str, message: str, hint: str) -> Problem:
    return ToolError.problem(message, code=f"executorch.{code}", hint=hint)
