"""The virtual device's own sha256sum against hashlib and the host's program."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from device_fixtures import MakeDevice

from etcli.device.shelltext import script


def test_it_says_what_the_hosts_says(virtual_device: MakeDevice, tmp_path: Path) -> None:
    device = virtual_device("x86_64")
    folder = "/data/local/tmp/sums"
    files = {"large": os.urandom(3_000_001), "small": b"x", "empty": b"", "two words": os.urandom(2_000_000)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        device.push(tmp_path / name, f"{folder}/{name}")
    names = [*files, "missing"]
    ours = device.shell(["sha256sum", *names], cwd=folder)
    host = subprocess.run(["sha256sum", *names], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ours.code, ours.stdout) == (host.returncode, host.stdout)
    assert "missing: No such file or directory" in ours.stderr
    for name, content in files.items():
        read = device.shell(script('sha256sum < "$1"', f"{folder}/{name}"))
        assert read.stdout == f"{hashlib.sha256(content).hexdigest()}  -\n"
    assert device.shell(["sha256sum", "--version"]).stdout.startswith("sha256sum")
    device.shell(["rm", "-rf", folder])
