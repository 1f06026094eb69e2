"""What the device tests share: the stock adb program run against a device, and small programs cross-compiled for it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from device_fixtures import MakeDevice, stock_adb

from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer

Adb = Callable[..., "subprocess.CompletedProcess[bytes]"]

HELLO = r"""
#include <cstdlib>
#include <iostream>
#include <sys/utsname.h>
#include <thread>
int main(int argc, char** argv) {
  std::thread([] { std::cout << "thread\n"; }).join();
  for (int i = 1; i < argc; ++i) std::cout << "argument " << argv[i] << "\n";
  const char* x = getenv("X");
  utsname name{};
  uname(&name);
  std::cout << "X=" << (x ? x : "") << " pointer=" << 8 * sizeof(void*) << " preload=" << (getenv("LD_PRELOAD") ? 1 : 0) << std::endl;
#ifdef __aarch64__
  std::cout << "compiled for aarch64" << std::endl;
#else
  std::cout << "compiled for x86_64" << std::endl;
#endif
  return argc > 1 ? atoi(argv[1]) : 0;
}
"""


@pytest.fixture
def phone(virtual_device: MakeDevice) -> AdbDevice:
    """The session's virtual aarch64 device."""
    return virtual_device("aarch64")


@pytest.fixture
def folder(phone: AdbDevice, request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder of the test's own on `phone`."""
    path = f"/data/local/tmp/{request.node.name[:60]}"
    phone.shell(["rm", "-rf", path])
    phone.shell(["mkdir", "-p", path])
    yield path
    phone.shell(["chmod", "-R", "u+rwx", path])
    phone.shell(["rm", "-rf", path])


@pytest.fixture
def adb(adb_server: AdbServer, phone: AdbDevice) -> Adb:
    """Runs the stock adb program against `phone` (or `serial`) and returns what it did."""

    def run(
        *arguments: str, stdin: bytes = b"", serial: str | None = phone.serial
    ) -> subprocess.CompletedProcess[bytes]:
        chosen = ["-s", serial] if serial else []
        command = [stock_adb(), "-P", str(adb_server.port), *chosen, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=60)

    return run


def _compiled(tmp_path_factory: pytest.TempPathFactory, compiler: str, *flags: str) -> Path:
    folder = tmp_path_factory.mktemp("hello")
    (folder / "hello.cc").write_text(HELLO)
    subprocess.run([compiler, *flags, "-o", folder / "hello", folder / "hello.cc", "-pthread"], check=True, timeout=60)
    return folder / "hello"


@pytest.fixture(scope="session")
def hello_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dynamically linked aarch64 program: prints its arguments, `$X` and what it is; exits with its first argument."""
    return _compiled(tmp_path_factory, "aarch64-linux-gnu-g++")


@pytest.fixture(scope="session")
def hello_aarch64_static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, linked statically."""
    return _compiled(tmp_path_factory, "aarch64-linux-gnu-g++", "-static")


@pytest.fixture(scope="session")
def hello_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for this machine."""
    return _compiled(tmp_path_factory, "g++")
