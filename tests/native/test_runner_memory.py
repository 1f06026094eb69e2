"""What loading takes: weights that files share are packed once, and lie in huge pages where the system has them."""

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

    def __init__(self, inner: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = nn.Linear(HIDDEN, inner, bias=False)
        self.down = nn.Linear(inner, HIDDEN, bias=False)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, hidden, pos, rotary, key, value):
        return self.head(self.down(self.up(hidden)))[:, -1:], key + 1, value + 1


def write_wide(folder: Path, layout: str, inner: int) -> Path:
    module = Wide(inner).eval()
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
    """The configurations of `Wide` as one file, as a file a method, and, `narrow`, nearly without weights."""
    folder = tmp_path_factory.mktemp("wide")
    made = {layout: write_wide(folder / layout, layout, INNER) for layout in ("package", "separate")}
    return {**made, "narrow": write_wide(folder / "narrow", "package", 8)}


def test_methods_share_packed_weights_in_one_file_and_in_several(wide, llama_runner) -> None:
    taken = {}
    for name, config in wide.items():
        run = llama_runner("--config", config, "--check", "--no-huge-pages")
        assert run.status == 0, run.stderr
        taken[name] = run.one("loaded")["memory_bytes"]
    for layout in ("package", "separate"):
        # packed once, not once a method
        assert 0.8 * WEIGHTS < taken[layout] - taken["narrow"] < 1.5 * WEIGHTS


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
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if setting.exists() and "[never]" not in setting.read_text():
        assert loaded["huge_page_bytes"] >= WEIGHTS * 3 / 4
    if setting.exists() and "[madvise]" in setting.read_text():
        assert plain["huge_page_bytes"] < WEIGHTS / 4
