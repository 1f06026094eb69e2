"""Which files of a Hugging Face folder hold its weights: one file, shards with an index, or shards that are whole without one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etcli.checkpoint.stored import StoredTensor
from etcli.common.errors import CheckpointError, EtcliError, Problem, Problems
from etcli.common.files import check_relative
from etcli.common.jsonfile import read_object
from etcli.output.units import counted
from etcli.recipe.written import shorten

_SHOWN = 4


@dataclass(frozen=True)
class FileSet:
    """Names of weights as transformers writes them: `stem + suffix`, or `stem-00001-of-00002 + suffix` and an index."""

    stem: str
    suffix: str

    @property
    def single(self) -> str:
        """The name of a whole model's file."""
        return self.stem + self.suffix

    @property
    def index(self) -> str:
        """The name of the file that says which shard holds which tensor."""
        return f"{self.single}.index.json"

    def shards(self, folder: Path) -> dict[str, tuple[int, int]]:
        """Shards in `folder` by name: number (from 1) and how many there are by the name."""
        pattern = re.compile(rf"{re.escape(self.stem)}-(\d{{1,6}})-of-(\d{{1,6}}){re.escape(self.suffix)}")
        matches = {entry.name: pattern.fullmatch(entry.name) for entry in folder.iterdir()}
        return {name: (int(match[1]), int(match[2])) for name, match in sorted(matches.items()) if match}

    def present(self, folder: Path) -> bool:
        """Whether `folder` has any of these files."""
        return (folder / self.single).is_file() or (folder / self.index).is_file() or bool(self.shards(folder))


SAFETENSORS = FileSet("model", ".safetensors")
PYTORCH = FileSet("pytorch_model", ".bin")


def stored_tensors(
    folder: Path,
    files: FileSet,
    read_header: Callable[[Path], dict[str, StoredTensor]],
    problems: Problems,
    remarks: list[str],
) -> dict[str, StoredTensor] | None:
    """Every tensor of the folder by the file's own name, or None with the reasons in `problems`."""
    single, index, shards = (folder / files.single).is_file(), (folder / files.index).is_file(), files.shards(folder)
    places = _weight_map(folder, files, problems) if index else None
    if index and places is None:
        return None
    if single and (shards or places) and set((places or {}).values()) != {files.single}:
        beside = [name for name in (*shards, files.index if index else "") if name]
        problems.add(
            CheckpointError.problem(
                f"{files.single} stands beside {_list(beside)}: one of them is left from another save",
                code="checkpoint.ambiguous",
                hint=f"Remove {files.single}, or the shards and their index, whichever is older.",
                file=folder,
            )
        )
        return None
    if places is not None:
        return _indexed(folder, files, places, shards, read_header, problems, remarks)
    if single:
        return problems.attempt(lambda: read_header(folder / files.single))
    return _unindexed(folder, shards, read_header, problems, remarks)


def _weight_map(folder: Path, files: FileSet, problems: Problems) -> dict[str, str] | None:
    """The index's shard by tensor; None, with the problem noted, for one that is wrong."""
    try:
        places = read_object(folder / files.index, code="checkpoint.index").get("weight_map")
        if not isinstance(places, dict) or not places:
            raise ValueError("it has no weight_map")
        return {str(name): check_relative(str(file)).as_posix() for name, file in places.items()}
    except EtcliError as error:
        problems.absorb(error)
    except ValueError as error:
        problems.add(_index_problem(folder, files, f"{files.index} is wrong: {error}"))
    return None


def _indexed(
    folder: Path,
    files: FileSet,
    places: dict[str, str],
    shards: dict[str, tuple[int, int]],
    read_header: Callable[[Path], dict[str, StoredTensor]],
    problems: Problems,
    remarks: list[str],
) -> dict[str, StoredTensor] | None:
    wanted = sorted(set(places.values()))
    absent = [file for file in wanted if not (folder / file).is_file()]
    if absent:
        problems.add(_missing(folder / files.index, absent, len(wanted)))
    headers = {
        file: problems.attempt(functools.partial(read_header, folder / file)) for file in wanted if file not in absent
    }
    if absent or any(header is None for header in headers.values()):
        return None
    held = {file: header or {} for file, header in headers.items()}
    lost = sorted(name for name, file in places.items() if name not in held[file])
    if lost:
        text = f"{files.index} names shards that lack {counted(len(lost), 'tensor')}: {_list(lost)}"
        problems.add(_index_problem(folder, files, text))
        return None
    stale = [name for name in shards if name not in held]
    if stale:
        remarks.append(f"{_list(stale)} in {folder.name} are left aside: {files.index} does not name them")
    everything = {name: tensor for header in held.values() for name, tensor in header.items()}
    # A tensor that several shards hold is the one in the shard that the index names.
    return everything | {name: held[file][name] for name, file in places.items()}


def _unindexed(
    folder: Path,
    shards: dict[str, tuple[int, int]],
    read_header: Callable[[Path], dict[str, StoredTensor]],
    problems: Problems,
    remarks: list[str],
) -> dict[str, StoredTensor] | None:
    totals = sorted({total for _, total in shards.values()})
    if len(totals) > 1:
        problems.add(
            CheckpointError.problem(
                f"{folder.name} has shards of several saves: of {' and of '.join(map(str, totals))} files",
                code="checkpoint.ambiguous",
                hint="Remove those of the older save, or fetch the index that belongs to the weights.",
                file=folder,
            )
        )
        return None
    there = {number for number, _ in shards.values()}
    absent = [number for number in range(1, totals[0] + 1) if number not in there]
    if absent:
        example = next(iter(shards))
        names = [re.sub(r"-\d+-of-", f"-{number:05d}-of-", example) for number in absent[:_SHOWN]]
        problems.add(_missing(folder, names, totals[0], len(absent)))
    headers = {name: problems.attempt(functools.partial(read_header, folder / name)) for name in shards}
    if absent or any(header is None for header in headers.values()):
        return None
    everything: dict[str, StoredTensor] = {}
    twice = []
    for header in headers.values():
        twice += [name for name in header or {} if name in everything]
        everything |= header or {}
    if twice:
        problems.add(
            CheckpointError.problem(
                f"more than one shard holds {counted(len(twice), 'tensor')}: {_list(twice)}",
                code="checkpoint.duplicate_tensor",
                hint="Fetch the index that belongs to the shards; without it, it cannot be told which one is meant.",
                file=folder,
            )
        )
        return None
    remarks.append(
        f"{folder.name} has {counted(len(shards), 'shard')} without an index; by name, and together, nothing is missing"
    )
    return everything


def _missing(place: Path, names: list[str], total: int, count: int | None = None) -> Problem:
    return CheckpointError.problem(
        f"the folder lacks {count or len(names)} of {counted(total, 'shard')}: {_list(names)}",
        code="checkpoint.shard_missing",
        hint="Fetch the missing files into the folder.",
        file=place,
    )


def _index_problem(folder: Path, files: FileSet, message: str) -> Problem:
    hint = "Fetch the folder again; its files are not of one version."
    return CheckpointError.problem(message, code="checkpoint.index", hint=hint, file=folder / files.index)


def _list(names: list[str]) -> str:
    return ", ".join(shorten(name) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
