"""What a deployment costs, against the stock adb program: bytes that cross the wire to the device, and seconds.

A proxy between the adb server and the device counts every byte that goes to it, ours and the peer's alike, so the figures do not rest on what
etcli says of itself. The device is the x86_64 virtual one; bundle and build are made up, of incompressible bytes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import Row, arguments, compare, publish
from private_adb import private_device

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import samples  # the tests' made-up bundles and builds

from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, DeployResult, deploy
from etcli.device.adb import AdbDevice
from etcli.device.program import adb_program
from etcli.device.server import AdbServer
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe

PEER_FOLDER = "/data/local/tmp/peer"


class CountingProxy:
    """Relays one loopback port to another and counts the bytes towards the device."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.to_device = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                server, _ = self._listener.accept()
            except OSError:
                return
            device = socket.create_connection(("127.0.0.1", self._target))
            for end in (server, device):  # the adb server and the daemon do the same: small packets must not wait
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._relay, args=(server, device, True), daemon=True).start()
            threading.Thread(target=self._relay, args=(device, server, False), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(1 << 18):
                if counted:
                    self.to_device += len(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()


class Bench:
    """A device behind the proxy, a bundle and a build, and the peer's way to send the same files."""

    def __init__(self, home: Path, server: AdbServer, device: AdbDevice, proxy: CountingProxy, megabytes: int) -> None:
        self.loaded: LoadedRecipe = samples.make_recipe(home)
        self.workspace = Workspace(home / "work", "tiny")
        self.server, self.device, self.proxy = server, device, proxy
        # two chunks of half the size each; made once, so that nothing of it repeats
        self.weights = os.urandom(megabytes * 500_000)
        samples.make_bundle(self.loaded, self.workspace, weights=self.weights)
        self.build(0)

    def build(self, number: int) -> None:
        """A build whose runner is one that was never sent."""
        samples.make_build(self.loaded, self.workspace, runner=f"#!/bin/sh\n# {number}\n")

    def deploy(self) -> DeployResult:
        """One deployment of ours."""
        return deploy(self.loaded, self.workspace, self.device, DeployOptions(), Console(verbosity=-1))

    def push(self, *options: str) -> None:
        """The same files by the adb program."""
        self.device.shell(["mkdir", "-p", PEER_FOLDER])
        sources = [str(self.workspace.bundle), str(self.workspace.build("host") / "stage")]
        command = [adb_program(), "-P", str(self.server.port), "-s", self.device.serial, "push", *options]
        subprocess.run([*command, *sources, PEER_FOLDER], check=True, capture_output=True)

    def forget(self) -> None:
        """An empty device."""
        self.device.shell(["rm", "-rf", self.loaded.recipe.device_dir, PEER_FOLDER])

    def sent(self, action: Callable[[], object]) -> float:
        """Bytes to the device while `action` runs."""
        before = self.proxy.to_device
        action()
        return self.proxy.to_device - before


def seconds(action: Callable[[], object], before: Callable[[], object] = lambda: None) -> Callable[[], float]:
    """A function that runs `before` untimed, then returns the wall seconds of `action`."""

    def measure() -> float:
        before()
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    return measure


@contextmanager
def prepared(megabytes: int) -> Iterator[Bench]:
    """Everything set up, and taken down at the end."""
    with tempfile.TemporaryDirectory(prefix="etcli-bench-") as scratch:
        home = Path(scratch)
        with private_device(home / "cache", "x86_64") as (server, device):
            proxy = CountingProxy(int(device.serial.rpartition(":")[2]))
            address = f"127.0.0.1:{proxy.port}"
            server.forget(device.serial)
            server.connect(address, timeout=20)
            try:
                yield Bench(home, server, AdbDevice(server, address), proxy, megabytes)
            finally:
                server.forget(address)
                proxy.close()


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__ or "")
    megabytes, pairs = (128, 5) if options.quick else (540, 7)
    with prepared(megabytes) as bench:
        rows = list(measure(bench, megabytes, pairs))
    return publish("deploy", rows, as_json=options.json)


def measure(bench: Bench, megabytes: int, pairs: int) -> Iterator[Row]:
    """The rows, one after the other."""
    size = f"{megabytes} MB"
    yield compare(
        f"first deployment, {size}",
        seconds(bench.deploy, bench.forget),
        seconds(bench.push, bench.forget),
        unit="s",
        bar=None,
        pairs=pairs,
        note="no claim: ours also hashes every file on both sides; peer: adb push",
    )
    bench.deploy()
    bench.push()
    unchanged = bench.deploy()
    whole = sum(file.size for file in unchanged.files)
    yield Row(
        f"bundle bytes sent again, unchanged, {size}",
        unchanged.sent_bytes,
        whole,
        "B",
        whole / max(unchanged.sent_bytes, 1),
        float(whole),
        unchanged.sent_bytes == 0,
        "peer: every byte, as adb push; a ratio to 0 is given to 1",
    )
    yield compare(
        f"wire bytes, unchanged, {size}",
        lambda: bench.sent(bench.deploy),
        lambda: bench.sent(bench.push),
        unit="B",
        bar=1000.0,
        pairs=pairs,
        note="protocol included; peer: adb push",
    )
    yield compare(
        f"redeploy, unchanged, {size}",
        seconds(bench.deploy),
        seconds(bench.push),
        unit="s",
        bar=1.0,
        pairs=pairs,
        note="peer: adb push",
    )
    yield compare(
        f"redeploy, unchanged, {size}, peer incremental",
        seconds(bench.deploy),
        seconds(lambda: bench.push("--sync")),
        unit="s",
        bar=None,
        pairs=pairs,
        note="peer: adb push --sync, which compares sizes and times, and removes nothing",
    )
    yield changed_program(bench, size, pairs)


def changed_program(bench: Bench, size: str, pairs: int) -> Row:
    """A new runner, the bundle as it was: bytes on the wire."""
    numbers = iter(range(1, 10_000))

    def ours() -> float:
        bench.build(next(numbers))
        return bench.sent(bench.deploy)

    return compare(
        f"wire bytes, one small file changed, {size}",
        ours,
        lambda: bench.sent(bench.push),
        unit="B",
        bar=500.0,
        pairs=pairs,
        note="protocol and the two manifests included; peer: adb push",
    )


if __name__ == "__main__":
    sys.exit(main())
