"""Another Python interpreter: found, and asked what it is and which packages it has, without importing any of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import ToolError
from etcli.common.process import describe_exit, run
from etcli.recipe.loaded import LoadedRecipe
from etcli.toolchain.programs import on_path

KEY = "export.python"

_SECONDS = 60.0

# The current folder comes first on the path of `-c`: a json.py there must not be taken for the real one.
_QUESTION = """\
import sys
sys.path[:] = [place for place in sys.path if place]
import json, platform
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps({"implementation": platform.python_implementation(), "version": list(sys.version_info[:3]),
                  "system": platform.system(), "machine": platform.machine(), "packages": found}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that answered. `version` is as `3.10.14`, `packages` the version of each package asked for that it has."""

    path: Path
    implementation: str
    version: str
    system: str
    machine: str
    packages: Mapping[str, str]

    @property
    def minor(self) -> str:
        """The version as wheels mean it: `3.10`."""
        return ".".join(self.version.split(".")[:2])


def worker_python(loaded: LoadedRecipe) -> Path:
    """The interpreter that `export.python` names, this one where it names none.

    Raises:
        ToolError: code `python.missing`: there is no such program.
    """
    text = loaded.recipe.export.python
    if text is None:
        return Path(sys.executable)
    path = loaded.resolve_path(text) if "/" in text else on_path(text)
    if path is not None and path.is_file():
        return path
    place = loaded.location(KEY)
    where = str(path) if path is not None else f"{text} on PATH"
    raise ToolError(
        f"{KEY}: there is no {where}",
        code="python.missing",
        hint="Name the python of the environment that has the vendor's packages, as .venv-neuron/bin/python.",
        file=place.file,
        line=place.line,
        column=place.column,
    )


def ask(path: Path, packages: Sequence[str]) -> Interpreter:
    """What the interpreter at `path` says of itself and of `packages`.

    Raises:
        ToolError: code `python.broken`: it does not start, is no Python 3, or does not answer within a minute.
    """
    hint = "Name a Python 3 that runs on this machine, in export.python."
    try:
        done = run([path, "-c", _QUESTION, *packages], env={"PYTHONSAFEPATH": "1"}, timeout=_SECONDS)
    except OSError as error:
        raise ToolError(
            f"{path} cannot be started: {error.strerror or error}", code="python.broken", hint=hint
        ) from None
    except subprocess.TimeoutExpired:
        raise ToolError(f"{path} did not answer within {_SECONDS:.0f} s", code="python.broken", hint=hint) from None
    try:
        said = json.loads(done.stdout.splitlines()[-1]) if done.ok and done.stdout else None
        if said is not None:
            return Interpreter(
                path,
                str(said["implementation"]),
                ".".join(str(int(number)) for number in said["version"]),
                str(said["system"]),
                str(said["machine"]),
                {str(name): str(version) for name, version in said["packages"].items()},
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = (lines[-1] if "Traceback" in done.stderr else lines[0])[:200] if lines else ""
    why = describe_exit(done.code) if not done.ok else "its answer is no answer"
    raise ToolError(
        f"{path} is no Python that can be used ({why}{f': {last}' if last else ''})", code="python.broken", hint=hint
    )
