"""Which device is meant, and what is said when it cannot be used. The adb server is one that lists what a test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from etcli.common.errors import DeviceError, ExitCode, ToolError, UsageError
from etcli.device import virtual
from etcli.device.program import adb_program_version
from etcli.device.select import compare_adb_versions, connected_devices, select_device, select_devices
from etcli.output.console import Console
from etcli.verbs.devices import list_devices

NO_PERMISSIONS = "no permissions (user in plugdev group; are your udev rules wrong?); see [http://developer.android.com/tools/device.html]"


class ListingServer:
    """Speaks enough of the adb server's protocol to list devices, and to refuse everything else."""

    def __init__(self) -> None:
        self.listing = ""
        self.version = 41
        self.socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it, its thread first: one that is late would accept on the next server's socket, which has the same number."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.socket.close()

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                length = connection.recv(4)
                if not length:
                    continue
                request = connection.recv(int(length, 16))
                answers = {b"host:devices": self.listing, b"host:version": f"{self.version:04x}"}
                body = answers.get(request, "device not found").encode()
                status = b"OKAY" if request in answers else b"FAIL"
                connection.sendall(status + b"%04x" % len(body) + body)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that says which devices are connected: pairs of serial and state."""
    server = ListingServer()
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))

    def set_(*devices: tuple[str, str]) -> None:
        server.listing = "".join(f"{serial}\t{state}\n" for serial, state in devices)

    yield set_
    server.close()


def _select(serial: str | None = None, kind: str | None = None) -> str:
    return select_device(serial=serial, virtual=kind, console=Console(verbosity=-1)).serial


def _refused(serial: str | None = None) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        _select(serial)
    assert caught.value.exit == ExitCode.DEVICE
    assert all(problem.hint for problem in caught.value.problems)
    return caught.value


def test_the_only_one(connected) -> None:
    connected(("A1", "device"))
    assert _select() == "A1"


def test_the_only_usable_one(connected) -> None:
    connected(("A1", "offline"), ("B2", "device"))
    assert _select() == "B2"


def test_a_serial_goes_before_the_variable(connected, monkeypatch: pytest.MonkeyPatch) -> None:
    connected(("A1", "device"), ("B2", "device"))
    monkeypatch.setenv("ANDROID_SERIAL", "A1")
    assert _select() == "A1"
    assert _select("B2") == "B2"


def test_none(connected) -> None:
    connected()
    error = _refused()
    assert error.problems[0].code == "device.none"
    assert "--device virtual" in (error.problems[0].hint or "")


@pytest.mark.known_failure("device-several")
def test_several(connected) -> None:
    connected(("A1", "device"), ("B2", "device"))
    error = _refused()
    assert error.problems[0].code == "device.several"
    assert "A1" in str(error)
    assert "B2" in str(error)
    assert "--serial A1" in (error.problems[0].hint or "")


@pytest.mark.known_failure("device-several")
def test_several_real_ones_are_told_with_model_and_soc(virtual_device) -> None:
    serials = [
        virtual_device("x86_64", {"ro.product.model": f"Model {n}", "ro.soc.model": f"SOC{n}"}).serial for n in (1, 2)
    ]
    with pytest.raises(DeviceError) as caught:
        _select()
    lines = str(caught.value).splitlines()
    for number, serial in enumerate(serials, 1):
        assert f"  {serial}  Model {number}  SOC{number}" in lines


@pytest.mark.known_failure("device-states")
@pytest.mark.parametrize(
    ("state", "code", "word"),
    [
        ("unauthorized", "device.unauthorized", "accept"),
        ("offline", "device.offline", "reconnect"),
        ("connecting", "device.offline", "reconnect"),
        ("recovery", "device.wrong_mode", "reboot"),
        ("sideload", "device.wrong_mode", "reboot"),
        ("bootloader", "device.wrong_mode", "reboot"),
        (NO_PERMISSIONS, "device.no_permissions", "udev"),
        ("something new", "device.unusable", "adb devices"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_states_that_are_of_no_use(connected, state: str, code: str, word: str, named: bool) -> None:
    connected(("A1", state))
    error = _refused("A1" if named else None)
    assert error.problems[0].code == code
    assert "A1" in error.problems[0].message
    assert word in (error.problems[0].hint or "")


def test_every_unusable_device_is_told(connected) -> None:
    connected(("A1", "unauthorized"), ("B2", "offline"))
    assert [problem.code for problem in _refused().problems] == ["device.unauthorized", "device.offline"]


def test_a_serial_that_is_not_there(connected, monkeypatch: pytest.MonkeyPatch) -> None:
    connected(("A1", "device"))
    error = _refused("C3")
    assert error.problems[0].code == "device.not_found"
    assert "A1" in str(error)
    monkeypatch.setenv("ANDROID_SERIAL", "C3")
    assert "ANDROID_SERIAL" in (_refused().problems[0].hint or "")


@pytest.mark.parametrize("kind", ["phone", "virtual:", "virtual:riscv64", "virtual:aarch64:x", ""])
def test_kinds_that_there_are_not(kind: str) -> None:
    with pytest.raises(UsageError):
        _select(None, kind)


def test_virtual_excludes_a_serial() -> None:
    with pytest.raises(UsageError):
        _select("A1", "virtual")


@pytest.mark.parametrize("port", ["0", "70000", "no", "-1", "٣"])
def test_a_port_that_is_none(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", port)
    with pytest.raises(UsageError, match="no port"):
        _select()


def test_a_server_on_another_machine_is_not_started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_HOST", "192.0.2.1")  # reserved for documentation
    with pytest.raises(DeviceError, match="no adb server answers"):
        _select()


def test_without_adb(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "none"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(probe.getsockname()[1]))
    with pytest.raises(ToolError):
        _select()


def test_a_server_that_talks_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                with server.accept()[0] as connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.getsockname()[1]))
    with pytest.raises(DeviceError):
        _select()
    server.shutdown(socket.SHUT_RDWR)
    thread.join()
    server.close()


@pytest.mark.known_failure("device-adb-versions")
def test_a_server_of_another_version_is_a_warning_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ListingServer()
    server.version = 32
    server.listing = "A1\tdevice\n"
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
    console = Console(verbosity=-1)
    assert [device.serial for device in list_devices(console).devices if device.state != "stopped"] == ["A1"]
    (warning,) = console.warnings
    assert warning.code == "device.adb_versions"
    assert "version 32" in warning.message
    server.version = adb_program_version() or 0
    console = Console(verbosity=-1)
    compare_adb_versions(console)
    assert console.warnings == []
    server.close()


@pytest.mark.known_failure("device-adb-versions")
def test_the_real_server_is_of_the_programs_version(adb_server) -> None:
    assert adb_server.version() == adb_program_version()


def test_several_serials_and_all(connected) -> None:
    def chosen(*serials: str, every: bool = False) -> list[str]:
        console = Console(verbosity=-1)
        found = [one.serial for one in select_devices(serials=serials, virtual=None, every=every, console=console)]
        return [*found, *(warning.code for warning in console.warnings)]

    connected(("A1", "device"), ("B2", "offline"), ("C3", "device"))
    assert chosen("C3", "A1", "C3") == ["C3", "A1"]
    assert chosen(every=True) == ["A1", "C3", "device.offline"]
    with pytest.raises(DeviceError) as caught:
        chosen("A1", "B2", "D4")
    assert [problem.code for problem in caught.value.problems] == ["device.offline", "device.not_found"]
    with pytest.raises(UsageError):
        chosen("A1", every=True)
    connected(("B2", "unauthorized"))
    with pytest.raises(DeviceError) as caught:
        chosen(every=True)
    assert caught.value.problems[0].code == "device.unauthorized"


def test_the_list_holds_the_unusable_too(connected) -> None:
    connected(("A1", "unauthorized"))
    (device,) = connected_devices()
    assert (device.serial, device.state, device.facts) == ("A1", "unauthorized", None)


def test_a_virtual_device_is_started_when_it_is_meant(adb_server, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    try:
        serial = _select(None, "virtual:x86_64")
        assert _select(None, "virtual:x86_64") == serial
        assert serial in [device.serial for device in connected_devices()]
    finally:
        virtual.stop("virtual-x86_64")
