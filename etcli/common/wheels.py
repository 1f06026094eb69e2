"""Wheels fetched with the user's own pip, so that its configured indexes, proxies and caches apply."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, ToolError
from etcli.common.process import run
from etcli.common.workspace import offline

_SECONDS = 3600.0


def forbidden(what: str, error: type[EtcliError] = ToolError) -> Problem:
    """The problem of `what` that would have to be fetched where `$ETCLI_OFFLINE` forbids it."""
    return error.problem(
        f"{what} is not in the cache, and ETCLI_OFFLINE forbids downloads",
        code="wheel.offline",
        hint="Unset ETCLI_OFFLINE for one run, or copy etcli's cache folder ($ETCLI_CACHE_DIR) from a machine that has it.",
    )


def download_wheel(
    requirement: str,
    folder: Path,
    *,
    platform: str | None = None,
    python_version: str | None = None,
    error: type[EtcliError] = ToolError,
) -> Path:
    """Fetch the wheel of `requirement` (as `executorch==1.5.1`), without what it depends on, into the empty `folder`.

    Only wheels are taken, never a source distribution, so nothing of the package is executed.

    Args:
        platform: compatibility tag, as `manylinux_2_28_aarch64`; this machine's by default.
        python_version: as `3.11`; this Python's by default.

    Raises:
        EtcliError: of class `error`: `wheel.offline` when `$ETCLI_OFFLINE` forbids it, `wheel.download` when pip fails,
            `wheel.no_pip` when this Python has no pip.
    """
    what = f"{requirement}{f' for {platform}' if platform else ''}"
    if offline():
        raise error.many([forbidden(what, error)])
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    argv += ["--progress-bar", "off", "--only-binary=:all:", "--no-deps", "--dest", str(folder)]
    if platform is not None:
        argv += ["--platform", platform]
    if python_version is not None:
        argv += ["--python-version", python_version]
    try:
        done = run([*argv, "--", requirement], timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise error(
            f"pip did not fetch {what} within an hour", code="wheel.download", hint="Check the network, then try again."
        ) from None
    if not done.ok:
        if "No module named pip" in done.stderr:
            raise error(
                f"cannot fetch {what}: {sys.executable} has no pip",
                code="wheel.no_pip",
                hint=f"Install it: {sys.executable} -m ensurepip",
            )
        raise error(f"pip cannot fetch {what}: {_reason(done.stderr)}", code="wheel.download", hint=_hint(done.stderr))
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise error(f"pip left {len(wheels)} wheels for {what} in {folder}", code="wheel.download", file=folder)
    return wheels[0]


def _reason(stderr: str) -> str:
    lines = [line.partition("ERROR:")[2].strip() for line in stderr.splitlines() if "ERROR:" in line]
    text = lines[-1] if lines else (stderr.strip().splitlines() or ["no message"])[-1]
    return re.sub(r"//[^/@\s]+@", "//", text)


def _hint(stderr: str) -> str:
    if "No matching distribution" in stderr or "Could not find a version" in stderr:
        return "The index that pip is configured with has no such wheel; see `pip config list` and PIP_INDEX_URL."
    return "Check the network, the proxy and pip's settings (`pip config list`), then try again."
