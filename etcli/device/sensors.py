"""How warm a device is and how fast its cores run at the moment, as far as a user without root may know."""

from __future__ import annotations

import contextlib
import re

from etcli.common.errors import EtcliError
from etcli.device.base import Device
from etcli.device.shelltext import script
from etcli.manifests.bench import Sensors

_SECONDS = 20.0

# Only what the shell has built in for files, so that a look costs the device next to nothing. $1 is put before the paths, for tests.
# Android's thermal service tells apps what SELinux hides from the shell in /sys (Android 10 and later), its battery service always.
_LOOK = """
for zone in "$1"/sys/class/thermal/thermal_zone*; do
  kind= value=
  { read -r kind < "$zone/type"; read -r value < "$zone/temp"; } 2>/dev/null
  [ -n "$value" ] && echo "zone $value $kind"
done
for core in "$1"/sys/devices/system/cpu/cpu[0-9]*; do
  value=
  { read -r value < "$core/cpufreq/scaling_cur_freq"; } 2>/dev/null
  [ -n "$value" ] && echo "core $value"
done
if command -v dumpsys >/dev/null 2>&1; then
  dumpsys thermalservice 2>/dev/null
  echo battery
  dumpsys battery 2>/dev/null
fi
exit 0
"""

_SERVICE = re.compile(r"Temperature\{mValue=(-?[0-9.]{1,12}), mType=-?\d+, mName=([^,}]{1,64})")
_STATUS = re.compile(r"^Thermal Status: ([0-6])$")
_BATTERY = re.compile(r"^\s*temperature: (-?\d{1,6})$")


def read_sensors(device: Device) -> Sensors:
    """What `device` tells now. A device that tells nothing, or is gone, gives an empty answer: it is never worth failing for."""
    with contextlib.suppress(EtcliError):
        return parse_sensors(device.shell(script(_LOOK, ""), timeout=_SECONDS).stdout)
    return Sensors()


def parse_sensors(text: str) -> Sensors:
    """The output of the look. Sensors that are off give impossible values, which are left out."""
    temperatures: dict[str, float] = {}
    clocks: list[float] = []
    throttling: int | None = None
    current = battery = False

    def keep(name: str, celsius: float | None) -> None:
        if celsius is not None and 0 < celsius < 150:
            temperatures[name] = max(celsius, temperatures.get(name, celsius))

    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if battery:
            if found := _BATTERY.match(line):
                keep("battery", int(found[1]) / 10)
        elif line == "battery":
            battery = True
        elif len(words) == 3 and words[0] == "zone":
            keep(words[2][:64], _zone_celsius(words[1]))
        elif len(words) == 2 and words[0] == "core" and words[1].isdigit() and len(words[1]) < 10:
            clocks.append(int(words[1]) / 1000)  # cpufreq counts in kHz
        elif found := _STATUS.match(line.strip()):
            throttling = int(found[1])
        elif line.strip().startswith("Current temperatures"):
            current = True  # what comes before is a cache, of which nobody knows the age
        elif current and (found := _SERVICE.search(line)):
            with contextlib.suppress(ValueError):
                keep(found[2], float(found[1]))
    return Sensors(temperatures_c=temperatures, clocks_mhz=tuple(clocks), throttling=throttling)


def _zone_celsius(text: str) -> float | None:
    """A thermal zone's `temp`: thousandths of a degree by the kernel's rule, tenths or whole degrees where a vendor broke it."""
    if not re.fullmatch(r"-?\d{1,7}", text):
        return None
    value = int(text)
    return value / 1000 if abs(value) >= 1000 else value / 10 if abs(value) >= 150 else float(value)
