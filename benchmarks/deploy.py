"""What a deployment costs, against the stock adb program: bytes that cross the wire to the device, and seconds.

A proxy between the adb server and the device counts every byte that goes to it, ours and the peer's alike, so the figures do not rest on what
etcli says of itself; what takes seconds is measured without it. The device is the x86_64 virtual one; bundle and build are made up, of
incompressible bytes.
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
from etcli.manifests.bundle import BundleManifest
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST

PEER_FOLDER = "/data/local/tmp/peer"
CHUNKS = 5
PROMISED_MB = 500
"""What the bars of a redeployment hold for: with less, starting is most of it."""


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
    """A device, seen straight and through the proxy, a bundle and a build, and the peer's way to send the same files."""

    def __init__(self, home: Path, server: AdbServer, device: AdbDevice, proxy: CountingProxy, megabytes: int) -> None:
        self.loaded: LoadedRecipe = samples.make_recipe(home)
        self.workspace = Workspace(home / "work", "tiny")
        self.server, self.device, self.proxy = server, device, proxy
        self.counted = AdbDevice(server, f"127.0.0.1:{proxy.port}")
        # chunks of a fifth of the size each; made once, so that nothing of it repeats
        self.weights = os.urandom(megabytes * 1_000_000 // CHUNKS)
        samples.make_bundle(self.loaded, self.workspace, weights=self.weights, chunks=CHUNKS)
        self.build(0)

    def build(self, number: int) -> None:
        """A build whose runner is one that was never sent."""
        samples.make_build(self.loaded, self.workspace, runner=f"#!/bin/sh\n# {number}\n")

    def change_chunk(self, number: int) -> int:
        """A bundle whose last chunk is one that was never sent; its bytes."""
        manifest = BundleManifest.read(self.workspace.bundle / MANIFEST)
        chunk = manifest.chunks[-1]
        content = number.to_bytes(8, "little") + self.weights
        entry = samples.entry(self.workspace.bundle, chunk.files[0].path, content)
        file = chunk.files[0].model_copy(update={"size": entry.size, "sha256": entry.sha256})
        chunks = (*manifest.chunks[:-1], chunk.model_copy(update={"files": (file,)}))
        manifest.model_copy(update={"chunks": chunks}).write(self.workspace.bundle / MANIFEST)
        return entry.size

    def deploy(self, *, verify: bool = False, counted: bool = False) -> DeployResult:
        """One deployment of ours."""
        device = self.counted if counted else self.device
        return deploy(self.loaded, self.workspace, device, DeployOptions(verify=verify), Console(verbosity=-1))

    def send(self) -> None:
        """The bundle by our own connection, as a deployment sends it, and nothing else."""
        with self.device.sender() as sender:
            for path in sorted(self.workspace.bundle.rglob("*")):
                if path.is_file():
                    sender.send(path, f"{PEER_FOLDER}/bundle/{path.relative_to(self.workspace.bundle).as_posix()}")

    def push_bundle(self) -> None:
        """The bundle by the adb program."""
        self.device.shell(["mkdir", "-p", PEER_FOLDER])
        self.adb("push", str(self.workspace.bundle), PEER_FOLDER)

    def push(self, *options: str, counted: bool = False) -> None:
        """All files by the adb program."""
        self.device.shell(["mkdir", "-p", PEER_FOLDER])
        sources = [str(self.workspace.bundle), str(self.workspace.build("host") / "stage")]
        self.adb("push", *options, *sources, PEER_FOLDER, counted=counted)

    def push_verified(self) -> None:
        """All files by the adb program, then their hashes on the device."""
        self.push()
        self.adb("shell", f"find {PEER_FOLDER} -type f -exec sha256sum {{}} +")

    def only_hash(self) -> None:
        """The hashes of all files on the device, on all its processors."""
        self.adb("shell", f"find {PEER_FOLDER} -type f -print0 | xargs -0 -n 1 -P 8 sha256sum")

    def adb(self, *words: str, counted: bool = False) -> None:
        """Run the adb program."""
        serial = (self.counted if counted else self.device).serial
        subprocess.run(
            [adb_program(), "-P", str(self.server.port), "-s", serial, *words], check=True, capture_output=True
        )

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
            server.connect(address, timeout=20)
            try:
                yield Bench(home, server, device, proxy, megabytes)
            finally:
                server.forget(address)
                proxy.close()


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__ or "")
    megabytes, pairs = (128, 5) if options.quick else (PROMISED_MB, 5)
    with prepared(megabytes) as bench:
        rows = list(measure(bench, megabytes, pairs))
    return publish("deploy", rows, as_json=options.json)


def measure(bench: Bench, megabytes: int, pairs: int) -> Iterator[Row]:
    """The rows, one after the other."""
    size = f"{megabytes} MB"
    yield compare(
        f"push of the bundle, {size}",
        seconds(bench.send, bench.forget),
        seconds(bench.push_bundle, bench.forget),
        unit="s",
        bar=0.95,
        pairs=pairs,
        note="peer: adb push of the same folder",
    )
    yield compare(
        f"first deployment, {size}",
        seconds(bench.deploy, bench.forget),
        seconds(bench.push_verified, bench.forget),
        unit="s",
        bar=0.95,
        pairs=pairs,
        note="every file hashed on the device; peer: adb push, then sha256sum on the device",
    )
    yield compare(
        f"first deployment, {size}, peer unchecked",
        seconds(bench.deploy, bench.forget),
        seconds(bench.push, bench.forget),
        unit="s",
        bar=None,
        pairs=pairs,
        note="no claim: ours is hashed on the device, beside the transfer; peer: adb push",
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
        lambda: bench.sent(lambda: bench.deploy(counted=True)),
        lambda: bench.sent(lambda: bench.push(counted=True)),
        unit="B",
        bar=1000.0,
        pairs=pairs,
        note="protocol included; peer: adb push",
    )
    trusted = compare(
        f"redeploy, unchanged, {size}",
        seconds(bench.deploy),
        seconds(bench.push_verified),
        unit="s",
        bar=8.0 if megabytes >= PROMISED_MB else None,
        pairs=pairs,
        note="content known by inode and change time since it was hashed; peer: adb push, then sha256sum on the device",
    )
    yield trusted
    ours = trusted.ours or 0.0
    yield Row(
        f"redeploy, unchanged, {size}, within 0.5 s",
        ours,
        0.5,
        "s",
        0.5 / ours,
        1.0,
        ours <= 0.5,
        "the row above; peer: the half second that was promised",
    )
    yield compare(
        f"redeploy, unchanged, {size}, peer unchecked",
        seconds(bench.deploy),
        seconds(bench.push),
        unit="s",
        bar=8.0 if megabytes >= PROMISED_MB else None,
        pairs=pairs,
        note="peer: adb push",
    )
    yield compare(
        f"redeploy, unchanged, {size}, all read again",
        seconds(lambda: bench.deploy(verify=True)),
        seconds(bench.push_verified),
        unit="s",
        bar=None,
        pairs=pairs,
        note="no claim: --verify hashes every byte, most of the time goes there; peer: adb push, then sha256sum on the device",
    )
    yield compare(
        f"redeploy, unchanged, {size}, all read again, peer only hashes",
        seconds(lambda: bench.deploy(verify=True)),
        seconds(bench.only_hash),
        unit="s",
        bar=None,
        pairs=pairs,
        note="no claim: the least that reading takes; peer: one sha256sum a file on the device, all at once",
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
    yield changed_chunk(bench, size, pairs)
    yield changed_program(bench, size, pairs)


def changed_chunk(bench: Bench, size: str, pairs: int) -> Row:
    """One chunk of five is another, the rest as it was: bytes on the wire against that chunk's own."""
    numbers = iter(range(1, 10_000))
    sizes: list[int] = []

    def ours() -> float:
        sizes.append(bench.change_chunk(next(numbers)))
        return bench.sent(lambda: bench.deploy(counted=True))

    return compare(
        f"wire bytes, one chunk of {CHUNKS} changed, {size}",
        ours,
        lambda: float(sizes[-1]),
        unit="B",
        bar=0.99,
        pairs=pairs,
        note="protocol and the two manifests included; peer: the bytes of that chunk alone",
    )


def changed_program(bench: Bench, size: str, pairs: int) -> Row:
    """A new runner, the bundle as it was: bytes on the wire."""
    numbers = iter(range(1, 10_000))

    def ours() -> float:
        bench.build(next(numbers))
        return bench.sent(lambda: bench.deploy(counted=True))

    return compare(
        f"wire bytes, one small file changed, {size}",
        ours,
        lambda: bench.sent(lambda: bench.push(counted=True)),
        unit="B",
        bar=500.0,
        pairs=pairs,
        note="protocol and the two manifests included; peer: adb push",
    )


if __name__ == "__main__":
    sys.exit(main())
