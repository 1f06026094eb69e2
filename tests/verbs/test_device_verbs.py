"""`etcli device` through the command line and a real adb server."""

import json
import subprocess
import sys

import click
import pytest

from etcli.cli.values import ByteCount
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
    assert info["result"]["deployments"] == []
    put = "mkdir -p /data/local/tmp/etcli/mine && echo {} >/data/local/tmp/etcli/mine/.etcli-manifest.json"
    subprocess.run([adb_command(), "-s", serial, "shell", put], check=True, timeout=60)
    (held,) = etcli("device", "info", "--serial", serial)[1]["result"]["deployments"]
    assert (held["name"], held["folder"]) == ("mine", "/data/local/tmp/etcli/mine")
    assert held["bytes"] >= 0
    assert set(info["result"]["sensors"]) >= {"temperatures_c", "clocks_mhz"}
    code, again = etcli("device", "start", "--arch", "x86_64", "--protocol", "old")
    assert (code, again["result"]["protocol"]) == (0, "old")
    code, info = etcli("device", "info", "--serial", again["result"]["serial"])
    assert (code, info["result"]["protocol"], info["result"]["targets"]) == (0, "old", ["host"])
    code, info = etcli("device", "info", "--serial", again["result"]["serial"])
    assert [item["name"] for item in info["result"]["deployments"]] == ["mine"], "through the old protocol too"
    assert etcli("device", "stop")[1]["result"]["stopped"] == [started["result"]["name"]]
    assert etcli("device", "stop")[1]["result"]["stopped"] == []
    listed = etcli("device", "list")[1]["result"]["devices"]
    assert ("virtual-x86_64", "stopped", "") in [(item["name"], item["state"], item["serial"]) for item in listed]


def test_stop_takes_what_list_shows_and_what_other_verbs_take(etcli):
    name = "virtual-x86_64"

    def start(*words):
        code, started = etcli("device", "start", "--arch", "x86_64", *words)
        assert code == 0, started
        return started["result"]

    small = start("--data-limit", "64MB")
    assert small["data_limit"] == 64_000_000
    storage = etcli("device", "info", "--serial", small["serial"])[1]["result"]["storage_bytes"]
    assert 60_000_000 < storage < 70_000_000
    code, document = etcli("device", "stop", "nobody", "also-nobody", name)
    assert (code, [error["code"] for error in document["errors"]]) == (4, ["virtual_device.unknown"] * 2)
    assert f"{name} ({small['serial']})" in document["errors"][0]["message"]
    assert etcli("device", "stop", "--device", "virtual")[1]["result"]["stopped"] == [], "that is the one for aarch64"
    ways = ([name], [small["serial"]], ["-s", small["serial"]], ["--device", "virtual:x86_64"], ["--arch", "x86_64"])
    for words in ways:
        words = [start()["serial"] if word == small["serial"] else word for word in words]
        start()
        assert etcli("device", "stop", *words)[1]["result"]["stopped"] == [name], words


@pytest.mark.parametrize(
    ("text", "count"), [("64MB", 64_000_000), ("1.5 GiB", 3 << 29), ("4194304", 4 << 20), ("2k", 2000), ("7B", 7)]
)
def test_sizes_as_people_write_them(text, count):
    assert ByteCount().convert(text, None, None) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "MB", "1TB", "nan", "0.1", "64i", "64iB", "64 iB"])
def test_what_is_no_size(text):
    with pytest.raises(click.BadParameter, match="is no size"):
        ByteCount().convert(text, None, None)


@pytest.mark.parametrize("text", ["9999999999999GB", "8589934592GiB"])
def test_a_size_that_nothing_has(text):
    with pytest.raises(click.BadParameter, match="is more than the 9,223,372,036,854,775,807 bytes"):
        ByteCount().convert(text, None, None)


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
