"""GGUF files as they lie on the disk: one, or the parts into which llama.cpp splits a model, seen as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from etcli.checkpoint.foreign import lfs_pointer
from etcli.common.errors import CheckpointError, EtcliError, Problem, Problems
from etcli.common.gguf_file import GgufHeader, GgufTensor, read_gguf_header
from etcli.common.gguf_parts import gguf_parts
from etcli.output.units import counted

_NAMED = 4


def read_whole(path: Path, problems: Problems) -> GgufHeader | None:
    """The header of the model at `path`, its tensors those of all parts; None where that cannot be had, with the reasons in `problems`.

    A model in parts is named by its first, which alone has the metadata (llama.cpp's `gguf-split` and its converter's `--split`).
    """
    first = problems.attempt(lambda: read_gguf_header(path))
    if first is None:
        return None
    count = first.metadata.get("split.count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count <= 1:
        problems.add(_cut_off(first))
        return first
    headers = _others(path, first, count, problems)
    if headers is None:
        return None
    tensors: dict[str, GgufTensor] = {}
    for header in headers:
        problems.add(_cut_off(header))
        for name, tensor in header.tensors.items():
            if name in tensors:
                problems.add(_problem(path, f"the tensor {name} stands in two parts, {tensor.file.name} one of them"))
            tensors[name] = tensor
    promised = first.metadata.get("split.tensors.count", len(tensors))
    if promised != len(tensors):
        problems.add(
            _problem(
                path, f"the parts of {path.name} hold {counted(len(tensors), 'tensor')}, they should hold {promised}"
            )
        )
    return replace(first, tensors=tensors)


def _others(path: Path, first: GgufHeader, count: int, problems: Problems) -> list[GgufHeader] | None:
    files = gguf_parts(path)
    if len(files) != count:
        problems.add(
            _problem(
                path,
                f"{path.name} is one of {count} parts of a model, and its name does not tell the others",
                hint=f"Give the parts the names they were published under, as NAME-00001-of-{count:05d}.gguf.",
            )
        )
        return None
    if path != files[0]:
        hint = f"Name the first part: {files[0]}"
        problems.add(_problem(path, f"{path.name} is not the first of {count} parts of a model", hint=hint))
        return None
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        shown = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        problems.add(
            CheckpointError.problem(
                f"the model lacks {len(missing)} of its {count} parts: {shown}",
                code="checkpoint.shard_missing",
                hint=f"Fetch the missing files into {path.parent}.",
                file=path,
            )
        )
        return None
    headers = [first]
    for number, file in enumerate(files[1:], start=1):
        pointer = lfs_pointer(file)
        try:
            header = None if pointer is not None else read_gguf_header(file)
        except EtcliError as error:
            problems.absorb(error)
            continue
        if header is None:
            problems.add(pointer)
        elif (header.metadata.get("split.count"), header.metadata.get("split.no")) != (count, number):
            problems.add(_problem(file, f"{file.name} is not part {number + 1} of {count}, as its name says"))
        else:
            headers.append(header)
    return headers if len(headers) == count else None


def _cut_off(header: GgufHeader) -> Problem | None:
    if header.data_end <= header.size:
        return None
    return CheckpointError.problem(
        f"{header.path.name} is cut off: it should have at least {header.data_end} bytes, it has {header.size}",
        code="checkpoint.truncated",
        hint="The download did not finish. Fetch the file again.",
        file=header.path,
    )


def _problem(path: Path, message: str, *, hint: str = "Fetch all parts again; they are not of one model.") -> Problem:
    return CheckpointError.problem(message, code="checkpoint.split", hint=hint, file=path)
