"""A zip for a report of a problem: what doctor found, versions, manifests and the ends of logs, scrubbed; nothing of the model or the prompts."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etcli.common.files import atomic_writer, output_path
from etcli.common.memory import available_bytes
from etcli.common.scrubbing import Scrubber
from etcli.common.workspace import Workspace, cache_dir
from etcli.manifests.run_record import DeviceFacts
from etcli.output.document import to_plain
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.recipe.resolved import dump, resolved_document
from etcli.recipe.variables import variable_names
from etcli.verbs.doctor import Diagnosis

_TIME = (1980, 1, 1, 0, 0, 0)
_MOST_BYTES = 256 << 10
"""Of each text; of a log that is its end, where the failure stands."""
_MOST_OF_A_KIND = 3

_SHOWN_VARIABLES = frozenset(
    [
        "ETCLI_CACHE_DIR",
        "ETCLI_OFFLINE",
        "ETCLI_RECIPE",
        "ETCLI_WORKSPACE",
        "ANDROID_NDK",
        "ANDROID_NDK_HOME",
        "ANDROID_NDK_ROOT",
        "ANDROID_HOME",
        "EXECUTORCH_ROOT",
        "MEDIATEK_SDK_ROOT",
        "ADBUTILS_ADB_PATH",
        "ANDROID_ADB_SERVER_HOST",
        "ANDROID_ADB_SERVER_PORT",
        "CC",
        "CXX",
        "CFLAGS",
        "CXXFLAGS",
        "LDFLAGS",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "OMP_WAIT_POLICY",
        "PATH",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "CI",
        "NO_COLOR",
        "COLUMNS",
        "LANG",
        "LC_ALL",
        "TERM",
    ]
)
"""Variables whose values are shown. Of others that etcli or adb read only the name is: their values may be prompts or passwords."""

_NAMED_VARIABLES = ("ETCLI_", "ANDROID_", "ADB_", "HF_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_")

_PROPERTIES = (
    "ro.product.",
    "ro.soc.",
    "ro.board.platform",
    "ro.hardware",
    "ro.build.version.",
    "ro.build.type",
    "ro.vendor.build.version.",
    "ro.etcli.",
    "ro.mediatek.",
    "ro.vendor.mediatek.",
    "ro.zygote",
    "ro.debuggable",
    "dalvik.vm.heap",
)

_LEFT_OUT = {"prompt", "system", "text", "prompts", "messages", "prompt_ids", "tokens", "reference_tokens"}
"""Keys whose values are what somebody asked or was answered. Of a recipe, a record or a document only their length is kept."""

_README = """\
What `etcli doctor --archive` wrote for a report of a problem. Look through it before you send it on.

{members}

Left out on purpose: weights and tokenizers, prompts and answers (only their lengths are there), the device's own log, its serial number,
and every variable of the environment but those listed in machine.json.

Taken out of every file: values of variables named like secrets (TOKEN, PASSWORD, API_KEY, ...), tokens by their shape, private keys, user
and password in URLs, Authorization headers, e-mail addresses, values that the recipe took from ${{VARIABLES}}; the home folder is ~, the user
<user>, the machine <host>.
"""


@dataclass(frozen=True)
class SupportArchive:
    """What was written: members by name with their size in bytes."""

    path: Path
    members: Mapping[str, int]


def write_support_archive(
    path: Path,
    loaded: LoadedRecipe,
    workspace: Workspace,
    diagnosis: Diagnosis,
    versions: Mapping[str, str | None],
    *,
    properties: Mapping[str, str] | None = None,
) -> SupportArchive:
    """Write the archive to `path`, readable by its owner only. `properties` are those of the device that was looked at.

    Raises:
        OSError: `path` cannot be written.
    """
    facts = diagnosis.device
    scrub = Scrubber(named=_named(loaded, facts))
    texts = {
        name: scrub(text) for name, text in _texts(loaded, workspace, diagnosis, versions, facts, properties or {})
    }
    members = "\n".join(f"  {name:<40} {len(text.encode()):>9,} bytes" for name, text in sorted(texts.items()))
    texts["README.txt"] = _README.format(members=members)
    with (
        atomic_writer(output_path(path), mode=0o600) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, text in sorted(texts.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr = 0o600 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text.encode("utf-8", "backslashreplace"))
    return SupportArchive(
        path, {name: len(text.encode("utf-8", "backslashreplace")) for name, text in sorted(texts.items())}
    )


def _named(loaded: LoadedRecipe, facts: DeviceFacts | None) -> dict[str, str]:
    """Values to take out beside the environment's secrets: what variables of the recipe stand for, and a phone's serial number."""
    found: dict[str, str] = {}
    for name in variable_names(json.dumps(to_plain(loaded.document), ensure_ascii=False)):
        if value := os.environ.get(name):
            found[value] = f"${{{name}}}"
    for words, what in ((loaded.recipe.run.prompt, "<prompt>"), (loaded.recipe.run.system, "<system prompt>")):
        if words and len(words.split()) > 1:  # a single word may be any word of a message
            found[words] = what
    if facts is not None and not facts.emulated:
        found[facts.serial] = "<serial>"
    return found


def _texts(
    loaded: LoadedRecipe,
    workspace: Workspace,
    diagnosis: Diagnosis,
    versions: Mapping[str, str | None],
    facts: DeviceFacts | None,
    properties: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    yield "doctor.json", _json(diagnosis)
    yield "versions.json", _json(versions)
    yield "machine.json", _json(_machine())
    yield "recipe.yaml", dump(_without_words(resolved_document(loaded)))
    if facts is not None:
        shown = {name: value for name, value in sorted(properties.items()) if name.startswith(_PROPERTIES)}
        yield "device.json", _json({"facts": facts, "properties": shown})
    yield "workspace.txt", _listing(workspace.home)
    for stage in (workspace.bundle, *_newest(workspace.builds, "*")):
        name = stage.relative_to(workspace.home).as_posix()
        for file in (stage / MANIFEST, stage / "export-report.json"):
            if file.is_file():
                yield f"{name}/{file.name}", _tail(file)
    logs = [*_newest(workspace.builds, "*/logs/*.log"), *_newest(workspace.export_work, "**/*.log")]
    for log in logs:
        yield log.relative_to(workspace.home).as_posix(), _tail(log)
    for run in _newest(workspace.runs, "*"):
        yield from _run(run, f"runs/{run.name}")
    for crash in _newest(cache_dir() / "crashes", "*.txt"):
        yield f"crashes/{crash.name}", _crash(crash)


def _run(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Its messages, and its record without words; its events are the answer itself."""
    record: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        record = json.loads((folder / "record.json").read_bytes())
        yield f"{name}/record.json", _json(_without_words(record))
    if (folder / "stderr.txt").is_file():
        messages = _tail(folder / "stderr.txt")
        for key in ("prompt", "text"):  # a runner may print what it was asked
            words = record.get(key) if isinstance(record, dict) else None
            if isinstance(words, str) and words.strip():
                messages = messages.replace(words.strip(), f"<{key}>")
        yield f"{name}/stderr.txt", messages


def _crash(path: Path) -> str:
    """A crash file. Its first line is the command, whose arguments may be a prompt: only the verb is kept."""
    first, _, rest = _tail(path).partition("\n")
    return f"{' '.join(first.split()[:2])} (arguments left out)\n{rest}"


def _machine() -> dict[str, Any]:
    try:
        release = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        release = ""
    names = sorted(
        name for name in os.environ if name.upper().startswith(_NAMED_VARIABLES) and name not in _SHOWN_VARIABLES
    )
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": release,
        "libc": " ".join(platform.libc_ver()),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_available_bytes": available_bytes(),
        "python": platform.python_version(),
        "variables": {name: os.environ[name] for name in sorted(_SHOWN_VARIABLES) if name in os.environ},
        "variables_set_too": names,
    }


def _processor() -> dict[str, str]:
    """The first core's model and instruction sets."""
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "flags", "Features", "CPU part") and key.strip() not in found:
                found[key.strip()] = value.strip()
    except OSError:
        pass
    return found


def _without_words(value: Any) -> Any:
    """`value` with the length of what people wrote and models answered in its place."""
    if isinstance(value, Mapping):
        return {
            key: "<serial>"
            if key == "serial" and not str(item).startswith("127.0.0.1:")
            else f"<left out, length {len(item)}>"
            if key in _LEFT_OUT and isinstance(item, (str, list))
            else _without_words(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_words(item) for item in value]
    return value


def _listing(folder: Path) -> str:
    lines = []
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_symlink():
            lines.append(f"{'link':>15}  {path.relative_to(folder)}")
        elif path.is_file():
            lines.append(f"{path.stat().st_size:>15,}  {path.relative_to(folder)}")
        if len(lines) == 5000:
            lines.append("and more")
            break
    return "\n".join(lines) + "\n"


def _newest(folder: Path, pattern: str) -> list[Path]:
    """The latest of what matches, links left aside."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.glob(pattern) if not path.is_symlink()]
    return sorted(found, key=lambda path: path.lstat().st_mtime, reverse=True)[:_MOST_OF_A_KIND]


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_BYTES))
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        return f"cannot be read: {error.strerror}\n"
    return text if size <= _MOST_BYTES else f"... ({size - _MOST_BYTES:,} bytes before)\n{text}"


def _json(value: Any) -> str:
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False) + "\n"
