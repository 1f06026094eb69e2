"""Temperatures and clocks: what phones print, sensors that are off, and the script on a file tree like theirs."""

from __future__ import annotations

import subprocess

from etcli.common.errors import DeviceError
from etcli.device import sensors
from etcli.device.sensors import parse_sensors, read_sensors
from etcli.device.shelltext import script
from etcli.manifests.bench import Sensors

THERMAL_SERVICE = """IsStatusOverride: false
ThermalEventListeners:
	callbacks: 2
Thermal Status: 2
Cached temperatures:
	Temperature{mValue=99.0, mType=3, mName=stale, mStatus=0}
HAL Ready: true
HAL connection:
	ThermalHAL 2.0 connected: yes
Current temperatures from HAL:
	Temperature{mValue=46.7, mType=0, mName=CPU0, mStatus=0}
	Temperature{mValue=38.25, mType=3, mName=skin, mStatus=0}
	Temperature{mValue=NaN, mType=9, mName=NPU, mStatus=0}
	Temperature{mValue=-274.0, mType=1, mName=GPU0, mStatus=0}
Current cooling devices from HAL:
	CoolingDevice{mValue=0, mType=2, mName=cpu}
battery
Current Battery Service state:
  AC powered: false
  temperature: 312
  technology: Li-ion
"""


def test_the_thermal_service_tells_what_sys_hides():
    found = parse_sensors(THERMAL_SERVICE)
    assert found.temperatures_c == {"CPU0": 46.7, "skin": 38.25, "battery": 31.2}
    assert found.throttling == 2
    assert found.hottest_c == 46.7


def test_zones_count_in_thousandths_tenths_or_degrees():
    found = parse_sensors(
        "zone 45250 mtktscpu\nzone 412 xo\nzone 39 pa\nzone 0 off\nzone -274000 none\nzone 125000 hot\nzone x y\n"
    )
    assert found.temperatures_c == {"mtktscpu": 45.25, "xo": 41.2, "pa": 39.0, "hot": 125.0}


def test_zones_of_one_name_keep_the_hottest():
    assert parse_sensors("zone 40000 cpu\nzone 50000 cpu\nzone 45000 cpu\n").temperatures_c == {"cpu": 50.0}


def test_nothing_told_is_nothing_known():
    assert parse_sensors("") == Sensors()
    assert (Sensors().hottest_c, Sensors().clock_mhz) == (None, None)


def test_the_script_reads_a_tree_like_a_phones(tmp_path):
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("cpu-1-0 usr\n")
    (zone / "temp").write_text("51000\n")
    (tmp_path / "sys/class/thermal/thermal_zone1").mkdir()  # one that may not be read
    for core, clock in (("cpu0", "1500000\n"), ("cpu10", "3000000\n")):
        folder = tmp_path / "sys/devices/system/cpu" / core / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(clock)
    (tmp_path / "sys/devices/system/cpu/cpu1").mkdir()  # one that is off
    done = subprocess.run(script(sensors._LOOK, str(tmp_path)), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = parse_sensors(done.stdout)
    assert found.temperatures_c == {"cpu-1-0 usr": 51.0}
    assert (found.clocks_mhz, found.clock_mhz) == ((1500.0, 3000.0), 2250.0)


def test_a_device_that_is_gone_is_not_worth_failing_for():
    class Gone:
        def shell(self, *_, **__):
            raise DeviceError("gone", code="device.gone")

    assert read_sensors(Gone()) == Sensors()
