"""Files of torch.save, read without torch: every tensor is where torch.load finds it, and what is wrong is told from the header."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
import torch

from etcli.checkpoint.stored import READABLE, read_stored
from etcli.checkpoint.torch_file import read_torch_file
from etcli.common.errors import CheckpointError, ExitCode, Problem


def tensors() -> dict[str, torch.Tensor]:
    base = torch.randn(10, 12)
    return {
        "bf16": torch.randn(3, 4).bfloat16(),
        "transposed": torch.randn(5, 6).half().t(),
        "window": base[2:5, 3:7],
        "column": base[:, 1],
        "base": base,
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "expanded": torch.randn(1, 4).expand(3, 4),
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 3),
        "integers": torch.arange(4),
        "odd": torch.arange(3, dtype=torch.int8),
        "after": torch.randn(7).bfloat16(),
    }


def save(path: Path, value: object, *, legacy: bool = False) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    return path


def refused(path: Path) -> Problem:
    with pytest.raises(CheckpointError) as caught:
        read_torch_file(path)
    (problem,) = caught.value.problems
    assert problem.exit_code == ExitCode.CHECKPOINT
    assert problem.hint
    assert problem.file == path
    return problem


def assert_as_torch_loads(path: Path, *, weights_only: bool = True) -> None:
    expected = torch.load(path, weights_only=weights_only)
    file = read_torch_file(path)
    assert list(file.value) == list(expected)
    for name, tensor in file.value.items():
        stored = file.tensor(name, tensor)
        assert stored.shape == tuple(expected[name].shape)
        if stored.dtype in READABLE and stored.nbytes:
            torch.testing.assert_close(read_stored(stored), expected[name].detach().float(), rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.known_failure("checkpoint-legacy-pth")
def test_tensors_are_those_of_torch_load(tmp_path: Path, legacy: bool) -> None:
    path = save(tmp_path / "model.pth", tensors(), legacy=legacy)
    assert_as_torch_loads(path)
    assert read_torch_file(path).legacy == legacy


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "model.pth"
    torch.save(tensors(), path, pickle_protocol=protocol)
    assert_as_torch_loads(path, weights_only=False)  # which knows no protocol above 3; the file is our own


def test_types_that_came_later_have_their_size(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.pth", {"a": torch.zeros(4, dtype=torch.uint16), "b": torch.zeros(4).to(torch.float8_e4m3fn)}
    )
    file = read_torch_file(path)
    assert [file.tensor(name, tensor).dtype for name, tensor in file.value.items()] == ["U16", "F8_E4M3"]
    assert [file.tensor(name, tensor).nbytes for name, tensor in file.value.items()] == [8, 4]


def test_a_module_state_dict_with_its_metadata(tmp_path: Path) -> None:
    assert_as_torch_loads(
        save(tmp_path / "m.pth", torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)).state_dict())
    )


def test_views_share_their_storage(tmp_path: Path) -> None:
    path = save(tmp_path / "m.pth", tensors())
    file = read_torch_file(path)
    base, window = (file.tensor(name, file.value[name]) for name in ("base", "window"))
    assert base.offset <= window.offset < base.offset + base.nbytes
    assert path.stat().st_size < 16 << 10


def test_reading_does_not_write_to_the_file(tmp_path: Path) -> None:
    path = save(tmp_path / "m.pth", {"a": torch.ones(4)})
    before = path.read_bytes()
    file = read_torch_file(path)
    read_stored(file.tensor("a", file.value["a"])).zero_()
    assert path.read_bytes() == before


def repack(path: Path, change: object, compression: int = zipfile.ZIP_STORED) -> Path:
    """The archive with every member passed through `change(name, bytes)`; None leaves it out."""
    target = path.with_name("repacked.pth")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            data = change(name, old.read(name))  # type: ignore[operator]
            if data is not None:
                new.writestr(name, data)
    return target


def test_big_endian_storages(tmp_path: Path) -> None:
    def swapped(name: str, data: bytes) -> bytes:
        if name.endswith("byteorder"):
            return b"big"
        return data[::-1] if "/data/" in name else data  # one element each

    path = repack(save(tmp_path / "m.pth", {"a": torch.tensor([1.5]), "b": torch.tensor([2.5]).bfloat16()}), swapped)
    assert_as_torch_loads(path)


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    path = repack(save(tmp_path / "m.pth", {"a": torch.ones(400)}), lambda _, data: data, zipfile.ZIP_DEFLATED)
    problem = refused(path)
    assert problem.code == "checkpoint.compressed"
    assert "torch.save" in str(problem.hint)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("part", [0.001, 0.02, 0.5, 0.97, 0.9999])
@pytest.mark.known_failure("checkpoint-truncated")
def test_a_file_that_is_cut_off(tmp_path: Path, legacy: bool, part: float) -> None:
    path = save(tmp_path / "m.pth", {"a": torch.randn(100, 100), "b": torch.randn(100)}, legacy=legacy)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(int(len(whole) * part), 8)])
    problem = refused(path)
    assert problem.code == "checkpoint.truncated"
    assert "cut off" in problem.message


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", "checkpoint.truncated", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "checkpoint.lfs_pointer", "LFS"),
        (pickle.dumps({"a": 1}, protocol=2), "checkpoint.pickle", "none of torch.save"),
        (b"\x7fELF", "checkpoint.pickle", "neither"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, code: str, words: str) -> None:
    path = tmp_path / "m.pth"
    path.write_bytes(content)
    problem = refused(path)
    assert problem.code == code
    assert words in problem.message


def test_archives_of_other_kinds(tmp_path: Path) -> None:
    plain = tmp_path / "a.zip"
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("word/document.xml", "text")
    assert "no data.pkl" in refused(plain).message
    program = tmp_path / "script.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), str(program))
    assert "TorchScript" in refused(program).message
    old = tmp_path / "old.pth"
    with tarfile.open(old, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("storages"))
    assert "tar archive" in refused(old).message


@pytest.mark.parametrize(
    ("member", "data", "words"),
    [
        ("data/0", None, "is missing"),
        ("data/0", b"1234", "not of the length"),
        ("byteorder", b"middle", "byte order"),
        ("data.pkl", b"\x80\2}", "damaged"),
    ],
)
def test_damaged_archives(tmp_path: Path, member: str, data: bytes | None, words: str) -> None:
    path = save(tmp_path / "m.pth", {"a": torch.ones(4)})
    damaged = repack(path, lambda name, old: data if name.partition("/")[2] == member else old)
    problem = refused(damaged)
    assert problem.code in ("checkpoint.pickle", "checkpoint.truncated")
    assert words in problem.message or "ends within" in problem.message


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.pth", {"a": torch.ones(4)})
    # The shape [4] as BININT1 in a one-tuple, before its stride [1].
    longer = repack(
        path, lambda name, old: old.replace(b"K\x04\x85", b"K\x7f\x85") if name.endswith("data.pkl") else old
    )
    file = read_torch_file(longer)
    with pytest.raises(CheckpointError, match="beyond its storage"):
        file.tensor("a", file.value["a"])


def test_a_member_beyond_the_archive_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.pth", {"a": torch.ones(4)})
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        place, name = archive.start_dir, next(name for name in archive.namelist() if name.endswith("data/0"))
    entry = data.index(name.encode(), place) - 46
    data[entry + 20 : entry + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    path.write_bytes(data)
    problem = refused(path)
    assert problem.code == "checkpoint.truncated"
    assert "beyond the end" in problem.message


class Hostile:
    """Runs a program when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("kind", ["zip", "legacy", "plain pickle"])
@pytest.mark.known_failure("checkpoint-hostile-pickle")
def test_a_hostile_file_runs_nothing_and_is_named(tmp_path: Path, kind: str) -> None:
    mark, path = tmp_path / "ran", tmp_path / "model.pth"
    value = {"a": torch.ones(2) if kind != "plain pickle" else 1, "b": Hostile(mark)}
    if kind == "plain pickle":
        path.write_bytes(pickle.dumps(value, protocol=4))
    else:
        save(path, value, legacy=kind == "legacy")
    problem = refused(path)
    assert problem.code == "checkpoint.unsafe_pickle"
    assert f"{os.system.__module__}.system" in problem.message
    assert "nothing of it was run" in problem.message
    assert not mark.exists()
    if kind == "zip":
        # The file is a real attack: loading it the old way does run the program.
        torch.load(io.BytesIO(path.read_bytes()), weights_only=False)
        assert mark.exists()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_weights_are_told_apart_from_attacks(tmp_path: Path) -> None:
    weights = torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 0, torch.qint8)
    problem = refused(save(tmp_path / "m.pth", {"a": weights}))
    assert "_rebuild_qtensor" in problem.message
    assert "quantised weights" in str(problem.hint)
