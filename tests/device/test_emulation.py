"""Programs of the device's own instruction set run, however they are started; the tools around them stay the host's."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_fixtures import MakeDevice

from etcli.device.adb import AdbDevice
from etcli.device.fit import fitting_targets

WAYS = {
    "shell": "./hello 3 a",
    "exec": "exec ./hello 3 a",
    "absolute": '"$PWD"/hello 3 a',
    "on PATH": "PATH=$PWD:$PATH hello 3 a",
    "env": "env ./hello 3 a",
    "env -i": "env -i ./hello 3 a",
    "env -i and a shell": "env -i /bin/sh -c './hello 3 a'",
    "timeout": "timeout 60 ./hello 3 a",
    "nice": "nice -n 5 ./hello 3 a",
    "nohup": "nohup ./hello 3 a",
    "setsid": "setsid -w ./hello 3 a",
    "xargs": "echo 3 a | xargs ./hello || exit 3",
    "a script": "printf '#!/system/bin/sh\\nexec ./hello 3 a\\n' > s; chmod 755 s; ./s",
    "all of them": "env A=1 timeout 60 nice env B=2 sh -c 'exec nohup ./hello 3 a'",
}


@pytest.fixture
def programs(phone: AdbDevice, folder: str, hello_aarch64: Path, hello_aarch64_static: Path) -> str:
    phone.push(hello_aarch64, f"{folder}/hello", executable=True)
    phone.push(hello_aarch64_static, f"{folder}/hello_static", executable=True)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_an_aarch64_program_runs(phone: AdbDevice, programs: str, way: str) -> None:
    result = phone.shell(["sh", "-c", WAYS[way]], cwd=programs, timeout=120)
    lines = [line for line in result.stdout.splitlines() if "ignoring input" not in line]
    assert lines[0] == "thread", result
    assert lines[1:3] == ["argument 3", "argument a"]
    assert lines[3].endswith("pointer=64 preload=0")
    assert lines[4] == "compiled for aarch64"
    assert result.code == 3


def test_a_static_one_runs(phone: AdbDevice, programs: str) -> None:
    assert "compiled for aarch64" in phone.shell(["./hello_static"], cwd=programs).stdout


def test_arguments_and_variables_arrive_whole(phone: AdbDevice, programs: str) -> None:
    result = phone.shell(["./hello", "0", "a b", "", "ü'\"$"], cwd=programs, env={"X": "1 2"})
    assert result.stdout.splitlines()[1:6] == [
        "argument 0",
        "argument a b",
        "argument ",
        "argument ü'\"$",
        "X=1 2 pointer=64 preload=0",
    ]


def test_it_is_streamed(phone: AdbDevice, programs: str) -> None:
    with phone.open(["./hello", "9"], cwd=programs) as stream:
        assert "compiled for aarch64" in list(stream.lines())
    assert stream.code == 9


def test_the_kernels_refusals_stay(phone: AdbDevice, programs: str) -> None:
    phone.shell(["chmod", "644", f"{programs}/hello"])
    result = phone.shell(["./hello"], cwd=programs)
    assert (result.code, "Permission denied" in result.stderr) == (126, True)
    assert phone.shell(["./missing"], cwd=programs).code == 127
    assert phone.shell(["env", "./missing"], cwd=programs).code == 127


def test_the_device_says_what_machine_it_is(phone: AdbDevice) -> None:
    assert phone.shell(["uname", "-m"]).stdout == "aarch64\n"
    assert phone.shell(["cat", "/proc/self/comm"]).stdout == "cat\n"


def test_the_emulator_model_can_be_chosen(virtual_device: MakeDevice, hello_aarch64: Path) -> None:
    device = virtual_device("aarch64", cpu="max")
    device.push(hello_aarch64, "/data/local/tmp/hello", executable=True)
    assert "compiled for aarch64" in device.shell(["/data/local/tmp/hello"]).stdout
    assert device.properties()["ro.etcli.emulator"].endswith("-cpu max")


def test_a_native_device_runs_native_programs(
    virtual_device: MakeDevice, hello_host: Path, hello_aarch64: Path
) -> None:
    device = virtual_device("x86_64")
    device.push(hello_host, "/data/local/tmp/hello", executable=True)
    device.push(hello_aarch64, "/data/local/tmp/foreign", executable=True)
    result = device.shell(["/data/local/tmp/hello", "5"])
    assert (result.code, "compiled for x86_64" in result.stdout) == (5, True)
    assert device.shell(["/data/local/tmp/foreign"]).code != 0


def test_the_targets_that_fit(phone: AdbDevice, virtual_device: MakeDevice) -> None:
    assert fitting_targets(phone) == ["linux-aarch64"]
    assert fitting_targets(virtual_device("x86_64")) == ["host"]
    assert fitting_targets(virtual_device("aarch64", {"ro.product.cpu.abilist": "armeabi-v7a,armeabi"})) == []


@pytest.mark.parametrize("arch", ["aarch64", "x86_64"])
def test_the_lists_of_processors_are_there(virtual_device, arch):
    """cpuinfo, and with it XNNPACK's thread pool, does not start without them."""
    device = virtual_device(arch)
    for name in ("possible", "present"):
        found = device.shell(["cat", f"/sys/devices/system/cpu/{name}"])
        assert (found.code, found.stdout) == (0, Path(f"/sys/devices/system/cpu/{name}").read_text())
