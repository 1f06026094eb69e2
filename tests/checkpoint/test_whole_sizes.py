"""Checkpoints of an 8B model's shape: opened and refused from headers alone, whatever is wrong; read one tensor at a time."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from etcli.checkpoint.state_dict import read_header
from etcli.common.errors import CheckpointError

SHAPE = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "norm_eps": 1e-5} | {
    "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3,
    "rope_theta": 500000.0,
    "use_scaled_rope": True,
}
WIDTHS = {"wq": (4096, 4096), "wk": (1024, 4096), "wv": (1024, 4096), "wo": (4096, 4096)}
INNER = {"w1": (14336, 4096), "w2": (4096, 14336), "w3": (14336, 4096)}


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "tok_embeddings.weight", (128256, 4096)
    for layer in range(32):
        yield from ((f"layers.{layer}.attention.{name}.weight", shape) for name, shape in WIDTHS.items())
        yield from ((f"layers.{layer}.feed_forward.{name}.weight", shape) for name, shape in INNER.items())
        yield from ((f"layers.{layer}.{name}_norm.weight", (4096,)) for name in ("attention", "ffn"))
    yield "norm.weight", (4096,)
    yield "output.weight", (128256, 4096)


def save_without_data(state: dict[str, torch.Tensor], path: Path) -> None:
    """A file of `torch.save` with holes in place of the tensors: 16 GB that take no disk."""
    with torch.serialization.skip_data():
        torch.save(state, path)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    state = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes()}
    save_without_data(state, tmp_path / "consolidated.00.pth")
    (tmp_path / "params.json").write_text(json.dumps(SHAPE))
    assert (tmp_path / "consolidated.00.pth").stat().st_size > 16e9
    return tmp_path


LOOK = """
import json, resource, sys
from pathlib import Path
from etcli.checkpoint.opening import examine
def read(): return int(next(line for line in open('/proc/self/io') if line.startswith('rchar')).split()[1])
before = read()
checkpoint, problems = examine(Path(sys.argv[1]))
result = {'codes': sorted({p.code for p in problems}), 'messages': [p.message for p in problems], 'read': read() - before, 'torch': 'torch' in sys.modules}
if len(sys.argv) > 2:
    import torch
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result['shape'] = list(checkpoint.read(sys.argv[2]).shape)
    result['grown'] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024
print(json.dumps(result))
"""


def look(folder: Path, *names: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", LOOK, folder, *names], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_a_tensor_takes_its_own_memory(large: Path) -> None:
    name = "model.layers.3.mlp.up_proj.weight"
    found = look(large, name)
    assert found["codes"] == []
    assert found["shape"] == [14336, 4096]
    assert found["grown"] < 2 * 4 * math.prod(found["shape"])  # bfloat16 mapped and float32 made are 1.5 of the result


def cut(folder: Path) -> None:
    os.truncate(folder / "consolidated.00.pth", 8 << 30)


def lfs(folder: Path) -> None:
    (folder / "consolidated.00.pth").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")


def shorter(folder: Path) -> None:
    (folder / "params.json").write_text(json.dumps(SHAPE | {"n_layers": 30, "n_kv_heads": 32}))


def other_sizes(folder: Path) -> None:
    (folder / "params.json").write_text(json.dumps(SHAPE | {"ffn_dim_multiplier": 1.0, "norm_eps": -1}))


def second_shard(folder: Path) -> None:
    (folder / "consolidated.01.pth").symlink_to(folder / "consolidated.00.pth")


def gap(folder: Path) -> None:
    (folder / "consolidated.02.pth").symlink_to(folder / "consolidated.00.pth")


def experts(folder: Path) -> None:
    (folder / "params.json").write_text(json.dumps(SHAPE | {"moe_args": {"num_experts": 16}}))


def hostile(folder: Path) -> None:
    torch.save(
        {"layers.0.attention.wq.weight": torch.ones(1), "x": Run(folder / "ran")}, folder / "consolidated.00.pth"
    )


class Run:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (lambda _: None, []),
        (cut, ["checkpoint.truncated"]),
        (lfs, ["checkpoint.lfs_pointer"]),
        (shorter, ["checkpoint.tensor_shape", "checkpoint.tensor_unknown"]),
        (other_sizes, ["checkpoint.config"]),
        (second_shard, ["checkpoint.ambiguous"]),
        (gap, ["checkpoint.shard_missing"]),
        (experts, ["checkpoint.unsupported"]),
        (hostile, ["checkpoint.unsafe_pickle"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_shows_without_reading_a_tensor(
    large: Path, change: Callable[[Path], None], codes: list[str]
) -> None:
    change(large)
    found = look(large)
    assert found["codes"] == codes, found
    assert not found["torch"]
    assert found["read"] < 4 << 20
    assert not (large / "ran").exists()


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_damage_anywhere_is_a_checkpoint_error(tmp_path: Path, legacy: bool) -> None:
    chance = random.Random(11)  # noqa: S311 - the same damage each time
    path = tmp_path / "m.pth"
    base = torch.randn(10, 12)
    torch.save({"a": base, "b": base[1:3], "c": {"x": torch.ones(2)}}, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 2, 8))):
            place = chance.randrange(1 if len(damaged) < 2 else len(damaged) - 1)
            kind = chance.randrange(4)
            if kind == 0:
                damaged[place : place + 1] = chance.randbytes(1)
            elif kind == 1:
                del damaged[place : place + chance.randrange(1, 9)]
            elif kind == 2:
                damaged[place:place] = chance.randbytes(4)
            else:
                del damaged[max(place, 4) :]
        path.write_bytes(damaged)
        try:
            read_header(path, [])
        except CheckpointError as error:
            assert all(problem.hint for problem in error.problems)  # noqa: PT017 - any outcome but another exception will do
