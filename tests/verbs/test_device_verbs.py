"""`etcli device` through the command line and a real adb server."""

import json
import subprocess
import sys

import pytest

from etcli.device.program import adb_command


@pytest.fixture
def etcli(tmp_path, adb_server, monkeypatch):
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))

    def call(*words):
        done = subprocess.run(
            [sys.executable, "-m", "etcli", *words, "--json"], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        return done.returncode, json.loads(done.stdout)

    yield call
    call("device", "stop")


def test_a_virtual_device_from_start_to_stop(etcli):
    code, started = etcli("device", "start", "--arch", "x86_64", "--set-prop", "ro.soc.model=MT6991")
    assert code == 0, started
    serial = started["result"]["serial"]
    _, listed = etcli("device", "list")
    mine = [item for item in listed["result"]["devices"] if item["serial"] == serial]
    assert [(item["soc"], item["name"], item["state"]) for item in mine] == [("MT6991", "virtual-x86_64", "device")]
    code, info = etcli("device", "info", "--serial", serial)
    assert code == 0, info
    assert info["result"]["facts"]["emulated"] is True
    assert info["result"]["targets"] == ["host"]
    assert info["result"]["platform"] == "mt6991"
    assert info["result"]["facts"]["soc_properties"]["ro.soc.model"] == "MT6991"
    assert info["result"]["npu_libraries"] == []
    assert 0 < info["result"]["free_bytes"] <= info["result"]["storage_bytes"]
    assert info["result"]["protocol"] == "new"
    assert info["result"]["properties"]["ro.soc.model"] == "MT6991"
    assert set(info["result"]["sensors"]) >= {"temperatures_c", "clocks_mhz"}
    code, again = etcli("device", "start", "--arch", "x86_64", "--protocol", "old")
    assert (code, again["result"]["protocol"]) == (0, "old")
    code, info = etcli("device", "info", "--serial", again["result"]["serial"])
    assert (code, info["result"]["protocol"], info["result"]["targets"]) == (0, "old", ["host"])
    assert etcli("device", "stop")[1]["result"]["stopped"] == [started["result"]["name"]]
    assert etcli("device", "stop")[1]["result"]["stopped"] == []
    listed = etcli("device", "list")[1]["result"]["devices"]
    assert ("virtual-x86_64", "stopped", "") in [(item["name"], item["state"], item["serial"]) for item in listed]


@pytest.mark.parametrize("text", ["novalue", "=x"])
def test_a_property_without_a_value_is_exit_2(etcli, text):
    code, document = etcli("device", "start", "--set-prop", text)
    assert code == 2
    assert document["errors"][0]["code"] == "device.property"


def test_an_unknown_device_is_exit_4(etcli):
    code, document = etcli("device", "info", "--serial", "nobody")
    assert code == 4
    assert document["errors"][0]["code"] == "device.not_found"


def test_adb_is_named_by_its_path_where_it_is_not_on_path(tmp_path, monkeypatch):
    own = tmp_path / "a folder" / "adb"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(own))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert adb_command() == f"'{own}'"
    monkeypatch.setenv("PATH", str(own.parent))
    assert adb_command() == "adb"
