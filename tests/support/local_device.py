"""A device whose `/data/local/tmp` is a folder of this machine and whose programs are this machine's. For tests of what needs no adb."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from etcli.common.errors import DeployError, DeviceError
from etcli.device.base import RemoteStat, ShellResult, Storage
from etcli.device.held_link import LINK
from etcli.manifests.run_record import DeviceFacts

ROOT = "/data/local/tmp"
LOADER = "/lib64/ld-linux-x86-64.so.2"


class LocalStream:
    """A started program; its lines as they come."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.rstrip("\r\n")
        self._process.wait()

    @property
    def stderr(self) -> str:
        return self._errors.read_text(errors="replace")

    @property
    def code(self) -> int:
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class LocalDevice:
    """Counts what is pushed. `break_after` makes the connection fail once that many files have been pushed."""

    serial = "local-1"
    features = frozenset(("shell_v2", "stat_v2"))

    def __init__(self, home: Path) -> None:
        self.root = home / "tmp"
        self.root.mkdir(parents=True)
        self._errors = home / "stderr.txt"
        self.pushed: list[str] = []
        self.pushed_bytes = 0
        self.commands: list[tuple[str, ...]] = []
        self.break_after: int | None = None
        self.free = 1 << 40
        self.corrupt: str | None = None
        self.mounts = "/dev/x / ext4 rw 0 0\n"
        self.soc_properties = {"ro.board.platform": "mt6991", "ro.soc.model": "MT6991Z"}

    def local(self, remote: str) -> Path:
        """Where a path of the device is on this machine."""
        assert remote == ROOT or remote.startswith(ROOT + "/"), remote
        return self.root / remote[len(ROOT) + 1 :]

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            serial=self.serial, model="Local", soc="MT6991Z", abi="x86_64", os="Linux test", emulated=True
        )

    def properties(self) -> Mapping[str, str]:
        return {
            "ro.product.cpu.abi": "x86_64",
            "ro.product.cpu.abilist": "x86_64",
            "ro.etcli.virtual": "1",
            **self.soc_properties,
        }

    def shell(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ShellResult:
        self._note(argv)
        if list(argv) == ["cat", "/proc/mounts"]:
            return ShellResult(0, self.mounts, "")
        try:
            done = subprocess.run(self._words(argv), capture_output=True, check=False, timeout=timeout)
        except FileNotFoundError:
            return ShellResult(127, "", f"{argv[0]}: not found")
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return ShellResult(code, self._back(done.stdout), self._back(done.stderr))

    @contextlib.contextmanager
    def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Iterator[LocalStream]:
        self._note(argv)
        with self._errors.open("w") as errors:
            process = subprocess.Popen(
                self._words(argv),
                cwd=self.local(cwd) if cwd else None,
                env={
                    **os.environ,
                    **{name: value.replace(ROOT, str(self.root)) for name, value in (env or {}).items()},
                },
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        stream = LocalStream(process, self._errors)
        try:
            yield stream
        finally:
            stream.close()

    def push(
        self, local: Path, remote: str, *, executable: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        if self.break_after is not None and len(self.pushed) >= self.break_after:
            raise DeviceError("the device went away", code="device.offline")
        path = self.local(remote)
        size = local.stat().st_size
        if size > self.free:
            raise DeployError("No space left on device", code="device.push")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".part")
        shutil.copyfile(local, temporary)
        if remote == self.corrupt:
            temporary.write_bytes(b"\0" * size)
        temporary.chmod(0o755 if executable else 0o644)
        temporary.replace(path)
        self.pushed.append(remote)
        self.pushed_bytes += size
        if progress is not None:
            progress(size)

    @contextlib.contextmanager
    def sender(self) -> Iterator[LocalDevice]:
        yield self

    def send(
        self, local: Path, remote: str, *, executable: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Counts the file under its own name, which it has not yet."""
        if self.break_after is not None and len(self.pushed) >= self.break_after:
            raise DeviceError("the device went away", code="device.offline")
        path = self.local(remote)
        data = local.read_bytes()
        if len(data) > self.free:
            raise DeployError("No space left on device", code="device.push")
        path.parent.mkdir(parents=True, exist_ok=True)
        name = remote.rpartition(".part-")[0]
        path.write_bytes(b"\0" * len(data) if name == self.corrupt else data)
        self.pushed.append(name)
        self.pushed_bytes += len(data)
        if progress is not None:
            progress(len(data))

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def recover(self, timeout: float) -> bool:
        return self.break_after is None

    def pull(self, remote: str, local: Path) -> None:
        try:
            shutil.copyfile(self.local(remote), local)
        except OSError as error:
            raise DeviceError(f"cannot read {remote}: {error}", code="device.pull") from None

    def stat(self, remote: str) -> RemoteStat | None:
        if remote == LOADER:
            return RemoteStat(stat.S_IFREG | 0o755, 1)
        if not remote.startswith(ROOT):
            return None
        try:
            found = self.local(remote).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return RemoteStat(found.st_mode, found.st_size)

    def free_bytes(self, remote: str) -> int:
        return self.free

    def storage(self, remote: str) -> Storage:
        return Storage(total=1 << 41, free=self.free)

    def _note(self, argv: Sequence[str]) -> None:
        if LINK not in argv:  # who has the device is no command of the stage's
            self.commands.append(tuple(argv))

    def _words(self, argv: Sequence[str]) -> list[str]:
        return [str(self.local(word)) if word.startswith(ROOT + "/") else word for word in argv]

    def _back(self, output: bytes) -> str:
        return output.decode(errors="replace").replace(str(self.root), ROOT)
