"""Paths of the device are resolved below its root, as the device itself would."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcli.device.virtual.tree import Tree

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/inside").write_text("inside")
    (root / "data").mkdir()
    (tmp_path / "outside").write_text("outside")
    return root


@pytest.fixture
def tree(root: Path) -> Iterator[Tree]:
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield Tree(descriptor)
    os.close(descriptor)


def _read(tree: Tree, path: str) -> str:
    with open(tree.open_read(path)) as file:  # noqa: PTH123 - a descriptor
        return file.read()


@pytest.mark.parametrize(
    "path", ["/etc/inside", "etc/inside", "//etc/./inside", "/../../etc/inside", "/data/../etc/inside"]
)
def test_paths(tree: Tree, path: str) -> None:
    assert _read(tree, path) == "inside"


@pytest.mark.parametrize("target", ["/etc", "../etc", "../../../../etc", "/../etc", "./../data/../etc", "/data/other"])
def test_links_resolve_below_the_root(tree: Tree, root: Path, target: str) -> None:
    (root / "data/other").symlink_to("/etc/")
    (root / "data/link").symlink_to(target)
    assert _read(tree, "/data/link/inside") == "inside"


@pytest.mark.parametrize("path", ["/../outside", "/data/up/outside", "/data/absolute"])
def test_nothing_outside_is_reached(tree: Tree, root: Path, tmp_path: Path, path: str) -> None:
    (root / "data/up").symlink_to("../..")
    (root / "data/absolute").symlink_to(tmp_path / "outside")
    with pytest.raises(FileNotFoundError):
        tree.open_read(path)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/none", errno.ENOENT),
        ("/none/x", errno.ENOENT),
        ("/etc/inside/x", errno.ENOTDIR),
        ("/etc", errno.EISDIR),
        ("/", errno.EISDIR),
        ("", errno.ENOENT),
        ("/data/loop", errno.ELOOP),
        ("/data/pipe", errno.EINVAL),
    ],
)
def test_errors_are_the_devices(tree: Tree, root: Path, path: str, number: int) -> None:
    (root / "data/loop").symlink_to("loop")
    os.mkfifo(root / "data/pipe")
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        tree.open_read(path)


def test_create_makes_folders_and_replaces_files(tree: Tree, root: Path) -> None:
    for text in ("one", "two"):
        file = tree.create("/data/a/b/file", 0o640)
        os.write(file, text.encode())
        os.close(file)
    assert (root / "data/a/b/file").read_text() == "two"
    assert (root / "data/a/b/file").stat().st_mode & 0o777 == 0o640


def test_create_does_not_write_through_a_link(tree: Tree, root: Path, tmp_path: Path) -> None:
    (root / "data/link").symlink_to(tmp_path / "outside")
    os.close(tree.create("/data/link", 0o644))
    assert not (root / "data/link").is_symlink()
    assert (tmp_path / "outside").read_text() == "outside"


def test_entries(tree: Tree, root: Path) -> None:
    (root / "data/file").write_text("12345")
    found = dict(tree.entries("/data"))
    assert set(found) == {".", "..", "file"}
    assert found["file"].st_size == 5


def test_a_folder_swapped_for_a_link_meanwhile_does_not_lead_out(tree: Tree, root: Path, tmp_path: Path) -> None:
    """A program of the device renames without pause while files are created: each lands inside or is refused."""
    (tmp_path / "target").mkdir()
    (root / "data/real").mkdir()
    (root / "data/fake").symlink_to(tmp_path / "target")
    stop = threading.Event()

    libc = ctypes.CDLL(None, use_errno=True)
    exchanged = 0

    def swap() -> None:
        nonlocal exchanged
        first, second = (os.fsencode(root / "data" / name) for name in ("real", "fake"))
        while not stop.is_set():
            exchanged += libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE) == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(2000):
            try:
                os.close(tree.create(f"/data/real/{number % 7}", 0o644))
            except OSError:
                continue
    finally:
        stop.set()
        thread.join()
    assert exchanged > 0
    assert list((tmp_path / "target").iterdir()) == []


def test_no_descriptor_is_left_open(tree: Tree, root: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    (root / "data/loop").symlink_to("loop")
    before = count()
    for path in ("/etc/inside", "/none", "/data/loop", "/etc/inside/x", "/a/b/c"):
        for action in (
            tree.lstat,
            tree.stat,
            lambda path: os.close(tree.open_read(path)),
            lambda path: list(tree.entries(path)),
        ):
            try:
                action(path)
            except OSError:
                continue
    assert count() == before


def test_a_folder_that_another_stream_makes_meanwhile(tree: Tree, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two streams that send into one new folder look for it at the same time."""
    mkdir = os.mkdir

    def late(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)  # the other stream's
        mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", late)
    os.close(tree.create("/data/new/deep/file", 0o644))
    assert (root / "data/new/deep/file").is_file()
