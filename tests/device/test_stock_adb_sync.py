"""The stock adb program's push, pull, ls and stat against the virtual device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from device_fixtures import MakeDevice

from etcli.device.adb import AdbDevice

NAMES = [
    "plain",
    "two words",
    "quote'",
    'double"',
    "$HOME",
    "ünïcode-漢字",
    "a;b&c|d",
    "back\\slash",
    "-dash",
    "comma,644",
    "new\nline",
]


def _data(size: int) -> bytes:
    return os.urandom(min(size, 1 << 20)) * (size // (1 << 20) + 1)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1 << 20, 50_000_000])
def test_files_of_any_size_come_back_the_same(adb, folder: str, tmp_path: Path, size: int) -> None:
    data = _data(size)[:size]
    (tmp_path / "there").write_bytes(data)
    pushed = adb("push", str(tmp_path / "there"), f"{folder}/file")
    assert pushed.returncode == 0, pushed
    assert adb("shell", f"stat -c %s {folder}/file").stdout.decode().strip() == str(size)
    assert adb("pull", f"{folder}/file", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize("name", NAMES)
def test_names_arrive_as_they_are(adb, phone: AdbDevice, folder: str, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(name)
    assert adb("push", str(tmp_path / name), f"{folder}/{name}").returncode == 0
    listing = phone.shell(["ls", "-N", folder]).stdout
    assert listing == f"{name}\n"
    assert adb("pull", f"{folder}/{name}", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_text() == name


def test_mode_and_time_are_kept(adb, phone: AdbDevice, folder: str, tmp_path: Path) -> None:
    for mode in (0o600, 0o644, 0o755):
        (tmp_path / "file").write_text("x")
        (tmp_path / "file").chmod(mode)
        os.utime(tmp_path / "file", (1_500_000_000, 1_500_000_000))
        adb("push", str(tmp_path / "file"), f"{folder}/file")
        assert phone.shell(["stat", "-c", "%a %Y", f"{folder}/file"]).stdout == f"{mode:o} 1500000000\n"


def test_a_folder_is_pushed_and_pulled_whole(adb, phone: AdbDevice, folder: str, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    wanted = {f"{a}/{b}.txt": f"{a}{b}" for a in ("one", "two/deep", "three x") for b in range(5)} | {"top": "top"}
    for name, text in wanted.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    (source / "empty").mkdir()
    assert adb("push", str(source), f"{folder}/new/").returncode == 0
    found = phone.shell(["find", folder, "-type", "f"]).stdout.splitlines()
    assert {line.removeprefix(f"{folder}/new/").removeprefix("tree/") for line in found} == set(wanted)
    assert adb("pull", f"{folder}/new", str(tmp_path / "back")).returncode == 0
    back = {
        path.relative_to(tmp_path / "back").as_posix(): path.read_text()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert {name.removeprefix("tree/"): text for name, text in back.items()} == wanted


def test_a_link_is_pushed_as_what_it_points_to_and_followed_when_pulled(
    adb, phone: AdbDevice, folder: str, tmp_path: Path
) -> None:
    phone.shell(["sh", "-c", f"echo target > {folder}/target; ln -s target {folder}/link; ln -s loop {folder}/loop"])
    assert adb("pull", f"{folder}/link", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_text() == "target\n"
    assert adb("pull", f"{folder}/loop", str(tmp_path / "loop")).returncode != 0


def test_a_push_replaces_a_link_and_not_what_it_points_to(adb, phone: AdbDevice, folder: str, tmp_path: Path) -> None:
    phone.shell(["sh", "-c", f"echo kept > {folder}/target; ln -s target {folder}/link"])
    (tmp_path / "new").write_text("new")
    assert adb("push", str(tmp_path / "new"), f"{folder}/link").returncode == 0
    assert phone.shell(["cat", f"{folder}/target"]).stdout == "kept\n"
    assert phone.shell(["cat", f"{folder}/link"]).stdout == "new"


def test_listing(adb, phone: AdbDevice, folder: str) -> None:
    phone.shell(["sh", "-c", f"printf 12345 > {folder}/five; mkdir {folder}/sub; chmod 644 {folder}/five"])
    rows = {line.split()[-1]: line.split()[:2] for line in adb("ls", folder).stdout.decode().splitlines()}
    assert rows["five"] == ["000081a4", "00000005"]
    assert rows["sub"][0] == "000041ed"
    assert set(rows) == {".", "..", "five", "sub"}


def test_a_file_of_more_than_four_gib_has_its_true_size(adb, phone: AdbDevice, folder: str) -> None:
    phone.shell(["truncate", "-s", "4700000001", f"{folder}/large"])
    status = phone.stat(f"{folder}/large")
    assert status is not None
    assert status.size == 4_700_000_001


@pytest.mark.parametrize(
    ("remote", "reason"),
    [
        ("/system/x", "Read-only file system"),
        ("/etc/passwd", "Read-only file system"),
        ("/data/../../etc/passwd", "Read-only file system"),
        ("/usr/bin/x", "Read-only file system"),
        ("/proc/self/x", "o such file"),
        ("/data/local/tmp/../../../bin/sh", "Read-only file system"),
    ],
)
def test_the_reason_of_a_refused_push(adb, tmp_path: Path, remote: str, reason: str) -> None:
    (tmp_path / "file").write_bytes(b"x" * 300_000)
    done = adb("push", str(tmp_path / "file"), remote)
    assert done.returncode != 0
    assert reason in (done.stdout + done.stderr).decode()


def test_no_permission(adb, phone: AdbDevice, folder: str, tmp_path: Path) -> None:
    phone.shell(["sh", "-c", f"mkdir {folder}/closed; chmod 555 {folder}/closed"])
    (tmp_path / "file").write_text("x")
    done = adb("push", str(tmp_path / "file"), f"{folder}/closed/file")
    assert b"Permission denied" in done.stdout + done.stderr
    assert adb("shell", f"touch {folder}/closed/file").returncode != 0


@pytest.mark.parametrize("target", ["/etc", "../../../../../../../../../etc", "/proc/1/root/etc", "/../../etc"])
def test_links_lead_to_the_device_and_never_out_of_it(
    adb, phone: AdbDevice, folder: str, tmp_path: Path, target: str
) -> None:
    (tmp_path / "file").write_text("x")
    phone.shell(["ln", "-s", target, f"{folder}/link"])
    assert adb("push", str(tmp_path / "file"), f"{folder}/link/etcli-escaped").returncode != 0
    assert not Path("/etc/etcli-escaped").exists()
    assert adb("pull", f"{folder}/link/passwd", str(tmp_path / "passwd")).returncode == 0
    assert (tmp_path / "passwd").read_text() == phone.shell(["cat", "/etc/passwd"]).stdout
    assert (tmp_path / "passwd").read_text() != Path("/etc/passwd").read_text()


def test_files_of_this_machine_are_not_there(adb, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for path in (
        str(secret),
        f"/data/local/tmp/../../..{secret}",
        "/proc/1/environ/../../../root/.ssh",
        "/home",
        "/root",
    ):
        assert adb("pull", path, str(tmp_path / "taken")).returncode != 0
    assert adb("shell", f"cat {secret}").returncode != 0


def test_a_full_disk(adb, virtual_device: MakeDevice, tmp_path: Path) -> None:
    small = virtual_device("x86_64", data_limit=2 << 20)
    (tmp_path / "big").write_bytes(b"x" * (5 << 20))
    done = adb("push", str(tmp_path / "big"), "/data/local/tmp/big", serial=small.serial)
    assert b"No space left on device" in done.stdout + done.stderr
    assert adb("shell", "cat /dev/zero > /data/local/tmp/zeros", serial=small.serial).stderr.endswith(
        b"No space left on device\n"
    )
    assert small.free_bytes("/data/local/tmp/x") == 0
    adb("shell", "rm /data/local/tmp/*", serial=small.serial)
    assert small.free_bytes("/data/local/tmp/x") == 2 << 20
    (tmp_path / "fits").write_bytes(b"x" * (1 << 20))
    assert adb("push", str(tmp_path / "fits"), "/data/local/tmp/fits", serial=small.serial).returncode == 0
