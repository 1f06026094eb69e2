"""An AQLM folder in the cache, made by a process of its own the first time that it is asked for."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import etcli
from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.hf_config import read_config
from etcli.common.errors import CheckpointError, ExportError, InterruptedByUser, Problems
from etcli.common.files import is_no_space, remove_tree
from etcli.common.hashing import file_sha256, value_sha256
from etcli.common.locks import exclusive
from etcli.common.memory import available_bytes
from etcli.common.workspace import cache_dir
from etcli.export.aqlm.calibration import calibration_ids
from etcli.export.aqlm.estimates import Needs, needs
from etcli.export.aqlm.folder import write_companions
from etcli.export.aqlm.settings import Settings, quantised_config
from etcli.export.assembly import united_config
from etcli.export.inputs import code_sha256, tensor_hashes
from etcli.export.isolated import run_isolated
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import QuantisedRecord
from etcli.output.console import Console
from etcli.output.units import bytes_text, counted, estimate_text
from etcli.tokenizer.base import Tokenizer

_CODE = tuple(
    f"export/aqlm/{name}"
    for name in (
        *("calibration.json", "calibration.py", "codebooks.py", "feedback.py", "folder.py", "layers.py", "linear.py"),
        *("parallel.py", "settings.py", "stations.py", "worker.py"),
    )
)
"""Whose bytes decide those of the folder, besides the weights."""

_WEIGHTS = "model.safetensors"

_SILENT_BYTES = 1 << 30
"""What is hashed within seconds, and from then on remembered."""


@dataclass(frozen=True)
class Original:
    """What is to be quantised: the checkpoint, `adapter` merged into it where there is one, and its tokenizer."""

    path: Path
    adapter: Path | None
    checkpoint: Checkpoint
    tokenizer: Tokenizer

    @property
    def config(self) -> ModelConfig:
        """The quantised network's numbers, with the stop ids of checkpoint and tokenizer together.

        Raises:
            CheckpointError: the tokenizer does not fit.
        """
        return quantised_config(united_config(self.checkpoint.config, self.tokenizer))


def folder_of(original: Original, settings: Settings, console: Console) -> Path:
    """Where the folder made of `original` is, or would be: its name is a hash over all that decides its bytes.

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    key = value_sha256(
        {
            "code": code_sha256(_CODE),
            "torch": importlib.metadata.version("torch"),
            "settings": settings.model_dump(mode="json"),
            "config": original.config.model_dump(mode="json"),
            "tensors": _tensor_hashes(original.checkpoint, console),
            "tokenizer": _tokenizer_hashes(original.tokenizer),
        }
    )
    return cache_dir() / "aqlm" / key[:32]


def is_whole(folder: Path) -> bool:
    """Whether `folder` is there with every file in its full length."""
    try:
        record = QuantisedRecord.read(folder / QuantisedRecord.FILE, error=CheckpointError)
        return record.key == folder.name and all(
            (folder / name).stat().st_size == size for name, size in record.files.items()
        )
    except (OSError, CheckpointError):
        return False


def made_folder(original: Original, settings: Settings, console: Console) -> Path:
    """The AQLM folder of `original`, quantised now if the cache does not hold it. Two processes that want the same wait for one another.

    Raises:
        CheckpointError: the checkpoint or its tokenizer cannot be read.
        ExportError: `aqlm.config` (Hugging Face's form has no place for this network), `aqlm.no_space`, `aqlm.cache`, `aqlm.moments`,
            `aqlm.range`, or the process failed or was killed.
        InterruptedByUser: Ctrl-C. Finished layers are kept.
    """
    folder = folder_of(original, settings, console)
    wait = functools.partial(console.note, "waiting for another process that quantises the same checkpoint")
    try:
        if is_whole(folder):
            return folder
        with exclusive(_lock(folder), on_wait=wait):
            if not is_whole(folder):
                remove_tree(folder)
                _make(original, settings, folder, console)
    except KeyboardInterrupt:
        raise InterruptedByUser(
            "quantising was interrupted",
            code="aqlm.interrupted",
            hint="Finished layers are kept: run the same command to go on.",
        ) from None
    except OSError as error:
        raise ExportError(
            f"cannot keep the quantised checkpoint in {folder.parent}: {error.strerror or error}",
            code="aqlm.no_space" if is_no_space(error) else "aqlm.cache",
            hint="Free some space there, make it writable, or set ETCLI_CACHE_DIR to another folder. Finished layers are kept.",
        ) from error
    return folder


def remove_made(original: Original, settings: Settings, console: Console) -> tuple[Path, int]:
    """Remove the folder of `original` and what an interrupted run left of it; where it is, and how many files went.

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    folder = folder_of(original, settings, console)
    places = [place for place in (folder, _unfinished(folder)) if place.is_dir()]
    if not places:
        return folder, 0
    wait = functools.partial(console.note, "waiting for another process that quantises the same checkpoint")
    with exclusive(_lock(folder), on_wait=wait):
        files = sum(path.is_file() for place in places for path in place.rglob("*"))
        for place in places:
            remove_tree(place)
    return folder, files


def threads() -> int:
    """How many matrices' parts are worked on at once: as many as there are cores to compute on."""
    return min(len(os.sched_getaffinity(0)), psutil.cpu_count(logical=False) or 1)


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _unfinished(folder: Path) -> Path:
    """Where finished layers are kept until all are."""
    return folder.with_name(f"{folder.name}.unfinished")


def _make(original: Original, settings: Settings, folder: Path, console: Console) -> None:
    config = original.config
    working = _unfinished(folder)
    working.mkdir(parents=True, exist_ok=True)
    _check_form(config, original)
    sequences = calibration_ids(original.tokenizer, config.context_length)
    needed = needs(config, sum(map(len, sequences)), threads())
    _check_needs(needed, working, console)
    errors = _quantise(original, sequences, settings, working, needed, console)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        made.mkdir()
        made.chmod(0o755)
        write_companions(made, config, original.tokenizer)
        (working / _WEIGHTS).replace(made / _WEIGHTS)
        QuantisedRecord(
            key=folder.name,
            etcli=etcli.__version__,
            torch=importlib.metadata.version("torch"),
            settings=settings.model_dump(mode="json"),
            calibration_tokens=sum(map(len, sequences)),
            errors={name: round(error, 6) for name, error in errors.items()},
            files={path.name: path.stat().st_size for path in sorted(made.iterdir())},
        ).write(made / QuantisedRecord.FILE)
        made.rename(folder)
    remove_tree(working)


def _quantise(
    original: Original,
    sequences: list[list[int]],
    settings: Settings,
    working: Path,
    needed: Needs,
    console: Console,
) -> dict[str, float]:
    layers = original.checkpoint.config.num_layers
    job = {
        "checkpoint": str(original.path),
        "adapter": None if original.adapter is None else str(original.adapter),
        "sequences": sequences,
        "settings": settings.model_dump(mode="json"),
        "folder": str(working),
        "threads": threads(),
    }
    title = f"Quantising {original.path.name} to AQLM 2x8, once: about {estimate_text(needed.seconds)} with {counted(threads(), 'thread')}"
    with console.step(title), console.progress("layers", layers) as advance:

        def heard(event: Mapping[str, Any]) -> None:
            if event["event"] == "begin":
                advance(event["layers"])
                if event["layers"]:
                    console.note(f"    {event['layers']} of {layers} layers are finished from an earlier run")
            elif event["event"] == "linear":
                console.detail(f"    {event['name']}: relative error {event['error']:.4f}")
                advance(0)
            else:
                advance(1)

        result = run_isolated(
            "etcli.export.aqlm.worker",
            job,
            title="the quantiser",
            on_event=heard,
            on_line=console.detail,
            memory_hint=f"It needs about {bytes_text(needed.memory_bytes)}. Close other programs, or use a machine with more memory; "
            "finished layers are kept.",
        )
    errors: dict[str, float] = result["errors"]
    return errors


def _check_form(config: ModelConfig, original: Original) -> None:
    """Hugging Face's configuration must say all that the checkpoint's own does.

    Raises:
        ExportError: `aqlm.config`.
    """
    with tempfile.TemporaryDirectory(prefix="etcli-aqlm-") as temporary:
        write_companions(Path(temporary), config, original.tokenizer)
        problems = Problems()
        found = read_config(Path(temporary), problems)
    if found is None or found != config.model_copy(update={"bos_id": found.bos_id}):
        reason = problems.found[0].message if problems.found else "it would be read as another network"
        raise ExportError(
            f"{original.path.name} cannot be written as a Hugging Face folder: {reason}",
            code="aqlm.config",
            hint="Export this checkpoint without model.quantize.",
        )


def _check_needs(needed: Needs, working: Path, console: Console) -> None:
    done = sum(path.stat().st_size for path in working.iterdir() if path.is_file())
    free = shutil.disk_usage(working).free + done
    if needed.disk_bytes > free:
        raise ExportError(
            f"quantising needs about {bytes_text(needed.disk_bytes)} in {working.parent}, {bytes_text(free)} are free",
            code="aqlm.no_space",
            hint="Free some space there, or set ETCLI_CACHE_DIR to a folder on another disk.",
        )
    available = available_bytes()
    if needed.memory_bytes > available:
        console.warn(
            f"quantising takes about {bytes_text(needed.memory_bytes)} of memory, {bytes_text(available)} are free",
            code="aqlm.memory",
        )


def _tensor_hashes(checkpoint: Checkpoint, console: Console) -> dict[str, str]:
    """Hashes by name, with a line of progress only where it may take a while: the question is asked by every stage."""
    if sum(info.nbytes for info in checkpoint.tensors.values()) < _SILENT_BYTES:
        return {name: checkpoint.sha256(name) for name in checkpoint.tensors}
    return tensor_hashes(checkpoint, console)


def _tokenizer_hashes(tokenizer: Tokenizer) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="etcli-aqlm-") as temporary:
        tokenizer.save(Path(temporary))
        return {path.name: file_sha256(path) for path in sorted(Path(temporary).iterdir())}
