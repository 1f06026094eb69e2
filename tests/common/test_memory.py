"""Free memory is the machine's, or what a control group leaves of it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from etcli.common.memory import available_bytes, oom_kills

MIB = 1 << 20


@pytest.fixture
def groups(tmp_path: Path) -> tuple[Path, Path]:
    """A control group tree of two levels, and the file that puts this process into the inner one."""
    root = tmp_path / "cgroup"
    (root / "outer" / "inner").mkdir(parents=True)
    membership = tmp_path / "membership"
    membership.write_text("0::/outer/inner\n")
    return root, membership


def limit(group: Path, maximum: str, used: int, inactive: int = 0) -> None:
    (group / "memory.max").write_text(maximum + "\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nactive_file 7\n")


def test_without_limits_it_is_the_machines(groups: tuple[Path, Path]) -> None:
    limit(groups[0] / "outer", "max", 5 * MIB)
    assert available_bytes(*groups) == pytest.approx(psutil.virtual_memory().available, rel=0.2)


@pytest.mark.parametrize("level", ["outer", "outer/inner"])
def test_the_tightest_group_counts_and_its_file_cache_is_free(groups: tuple[Path, Path], level: str) -> None:
    limit(groups[0] / level, str(100 * MIB), 70 * MIB, inactive=20 * MIB)
    assert available_bytes(*groups) == 50 * MIB


def test_a_group_beyond_its_limit_leaves_nothing(groups: tuple[Path, Path]) -> None:
    limit(groups[0] / "outer", str(10 * MIB), 20 * MIB)
    assert available_bytes(*groups) == 0


def test_machines_without_control_groups(tmp_path: Path) -> None:
    assert available_bytes(tmp_path, tmp_path / "none") > 0
    (tmp_path / "old").write_text("4:memory:/docker/abc\n")
    assert available_bytes(tmp_path, tmp_path / "old") > 0


def test_kills_for_memory_are_counted_on_the_machine_and_in_the_group(
    groups: tuple[Path, Path], tmp_path: Path
) -> None:
    vmstat = tmp_path / "vmstat"
    assert oom_kills(*groups, vmstat) == 0
    vmstat.write_text("nr_free_pages 5\noom_kill 3\nswap_ra 1\n")
    (groups[0] / "outer" / "memory.events").write_text("low 0\noom 7\noom_kill 4\noom_group_kill 9\n")
    assert oom_kills(*groups, vmstat) == 7
