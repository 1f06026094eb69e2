"""What loading takes: weights that files share are packed once, and memory moves to huge pages where the system has them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from etcli.export.backends.registry import BACKENDS

HIDDEN, INNER, VOCABULARY, CACHE, TOKENS = 512, 4096, 8, 16, 4
WEIGHTS = 2 * HIDDEN * INNER * 4
"""Bytes of the weights of `Wide`: 16 MiB."""


class Wide(nn.Module):
    """A last chunk of one layer by its tensors, with cache `ring`; nearly all of it is two large matrices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, hidden, pos, rotary, key, value):
        return self.head(self.down(self.up(hidden)))[:, -1:], key + 1, value + 1


def write_wide(folder: Path, layout: str) -> Path:
    module = Wide().eval()
    programs = {
        f"wide_{tokens}": torch.export.export(
            module,
            (
                torch.zeros(1, tokens, HIDDEN),
                torch.tensor([0, tokens]),
                torch.zeros(1, 2, tokens, 2),
                torch.zeros(1, 1, CACHE, 2),
                torch.zeros(1, 1, CACHE, 2),
            ),
        )
        for tokens in (TOKENS, 1)
    }
    files = [programs] if layout == "package" else [{name: program} for name, program in programs.items()]
    lines = [
        *("schema_version=1", "name=wide", "cache=ring", f"hidden_size={HIDDEN}", "head_dim=2", "num_kv_heads=1"),
        *("num_layers=1", f"vocab_size={VOCABULARY}", f"cache_length={CACHE}", f"prompt_tokens={TOKENS}", "stop_ids="),
        *("pad_id=0", "embedding.path=embedding.bin", "embedding.dtype=float32", f"embedding.rows={VOCABULARY}"),
        *(f"embedding.cols={HIDDEN}", "rope.path=rope.bin", f"rope.positions={CACHE}", "chunks=1", "chunk.0.layers=1"),
    ]
    folder.mkdir()
    for number, methods in enumerate(files):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (folder / f"{number}.pte").write_bytes(BACKENDS["xnnpack"].lower(methods).buffer)
        for name in methods:
            tokens = name.removeprefix("wide_")
            lines += [f"chunk.0.method.{tokens}.path={number}.pte", f"chunk.0.method.{tokens}.name={name}"]
    (folder / "embedding.bin").write_bytes(bytes(VOCABULARY * HIDDEN * 4))
    (folder / "rope.bin").write_bytes(bytes(CACHE * 2 * 2 * 4))
    (folder / "runner.cfg").write_text("\n".join(lines) + "\n")
    return folder / "runner.cfg"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The configurations of `Wide` as one file, and as a file a method."""
    folder = tmp_path_factory.mktemp("wide")
    return {layout: write_wide(folder / layout, layout) for layout in ("package", "separate")}


def test_files_of_one_method_each_share_packed_weights(wide, llama_runner) -> None:
    taken = {}
    for layout, config in wide.items():
        run = llama_runner("--config", config, "--check", "--no-huge-pages")
        assert run.status == 0, run.stderr
        taken[layout] = run.one("loaded")["memory_bytes"]
    assert taken["package"] > WEIGHTS
    assert taken["separate"] - taken["package"] < WEIGHTS / 2


def test_huge_pages_are_used_where_the_system_gives_them(wide, llama_runner, tmp_path: Path) -> None:
    used, unused = (
        llama_runner("--config", wide["package"], "--prompt-ids", "1,2,3", "--max-new-tokens", "3", *flags)
        for flags in ((), ("--no-huge-pages",))
    )
    assert used.status == unused.status == 0, used.stderr + unused.stderr
    assert used.tokens == unused.tokens
    loaded, plain = used.one("loaded"), unused.one("loaded")
    assert loaded["huge_page_bytes"] >= plain["huge_page_bytes"]
    assert loaded["memory_bytes"] < plain["memory_bytes"] * 1.2
    # this machine's own answer to the same request tells whether it has any
    if _collapses():
        assert loaded["huge_page_bytes"] >= WEIGHTS * 3 / 4


def _collapses() -> bool:
    """Whether the system puts 2 MiB that are in use into a huge page when asked to."""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    block = 2 << 20
    with mmap.mmap(-1, 2 * block, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"\1" * (2 * block))
        view = ctypes.c_char.from_buffer(memory)
        start = -(-ctypes.addressof(view) // block) * block
        answer = libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(block), 25)
        del view
    return answer == 0 and "AnonHugePages" in Path("/proc/self/smaps_rollup").read_text()
