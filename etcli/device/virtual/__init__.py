"""A virtual device: an ADB daemon of our own that the stock adb binary connects to over loopback.

`start`, `ensure`, `stop` and `list_devices` manage them; `python -m etcli.device.virtual` is the daemon.
"""

from __future__ import annotations

from etcli.device.virtual.manage import VirtualDevice, default_name, ensure, list_devices, start, stop
from etcli.device.virtual.spec import ARCHES

list = list_devices

__all__ = ["ARCHES", "VirtualDevice", "default_name", "ensure", "list", "list_devices", "start", "stop"]
