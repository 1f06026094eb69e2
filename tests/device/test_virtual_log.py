"""The virtual device's log: bounded, the newest lines kept."""

from __future__ import annotations

from etcli.device.adb import AdbDevice

LOG = "/data/local/.log"


def test_it_does_not_grow_without_bound(phone: AdbDevice) -> None:
    fill = f'rm -f {LOG}; i=0; while [ $i -lt 3000 ]; do echo "$i $(printf %0400d 0)"; i=$((i + 1)); done > {LOG}'
    assert phone.shell(["sh", "-c", fill]).code == 0
    before = phone.stat(LOG)
    assert before is not None
    assert before.size > 1 << 20
    assert phone.shell(["log", "-t", "mine", "the newest"]).code == 0
    after = phone.stat(LOG)
    assert after is not None
    assert after.size <= 1 << 19
    lines = phone.shell(["cat", LOG]).stdout.splitlines()
    assert "mine: the newest" in lines[-1]
    assert lines[-2].startswith("2999 ")
    assert all(line.endswith("0" * 400) for line in lines[:-1]), "no line is cut"
    assert "the newest" in phone.shell(["logcat", "-d", "-t", "3"]).stdout
    phone.shell(["logcat", "-c"])
    assert phone.stat(LOG) is None
