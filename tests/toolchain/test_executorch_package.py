"""ExecuTorch's C++ package: the installed one without importing it, and that of another platform out of a wheel, once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from etcli.common.errors import ToolError
from etcli.tables.targets import load_targets
from etcli.toolchain.executorch import ExecutorchPackage, host_package, needs_download, wheel_for
from etcli.toolchain.executorch import wheel as executorch

AARCH64 = load_targets()["linux-aarch64"]
PLATFORM = str(AARCH64.executorch.wheel_platform)
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real aarch64 shared library that holds the program identifier."""
    path = tmp_path_factory.mktemp("library") / "libexecutorch.so"
    argv = ["aarch64-linux-gnu-g++", "-x", "c++", "-", "-shared", "-fPIC", "-o", path]
    subprocess.run(argv, input='extern const char id[] = "ET12";', text=True, check=True)
    return path.read_bytes()


@pytest.fixture
def without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for pip where its work is not the matter; lists what was asked for."""
    asked = []

    def copied(requirement: str, folder: Path, **options: object) -> Path:
        asked.append(requirement)
        folder.mkdir(parents=True)
        [wheel] = (tmp_path / "links").iterdir()
        return Path(shutil.copy(wheel, folder))

    monkeypatch.setattr(executorch, "download_wheel", copied)
    return asked


@pytest.fixture
def make_wheel(library: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts an ExecuTorch wheel for aarch64 where pip looks and nowhere else; members can be replaced or, with None, left out."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ETCLI_OFFLINE", raising=False)
    host = host_package()

    def make(members: dict[str, bytes | None] | None = None) -> Path:
        info = f"executorch-{host.release}.dist-info"
        content: dict[str, bytes | None] = {
            "executorch/version.py": f'__version__ = "{host.version}"\ngit_version = "{host.commit}"\n'.encode(),
            "executorch/share/cmake/executorch-config.cmake": b"",
            "executorch/include/executorch/runtime/executor/program.h": b"",
            "executorch/schema/program.fbs": b'file_identifier "ET12";\n',
            "executorch/lib/libexecutorch.so": library,
            "executorch/exir/_big.py": b"not wanted",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: executorch\nVersion: {host.release}\n".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-{PLATFORM}\n".encode(),
            f"{info}/RECORD": b"",
            **(members or {}),
        }
        path = links / f"executorch-{host.release}-{TAG}-{TAG}-{PLATFORM}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content.items():
                if data is not None:
                    archive.writestr(name, data)
        return path

    return make


def test_the_installed_package_is_found_without_an_import() -> None:
    code = (
        "import sys; from etcli.toolchain.executorch import host_package as h; p = h(); print(p.release, p.program_identifier());"
        "sys.exit(any(name in sys.modules for name in ('torch', 'executorch')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    release, identifier = done.stdout.split()
    assert re.fullmatch(r"\d+\.\d+\.\d+", release)
    assert identifier == "ET12"


def test_the_wheel_is_unpacked_once(make_wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel()
    assert needs_download(AARCH64)
    package = wheel_for(AARCH64)
    assert package.provider == f"wheel:{PLATFORM}"
    assert package.release == host_package().release
    assert package.program_identifier() == "ET12"
    assert (package.cmake_dir / "executorch-config.cmake").is_file()
    assert not (package.root / "exir").exists()
    assert [path.name for path in package.root.parent.iterdir() if not path.name.endswith(".lock")] == [
        package.root.name
    ]
    wheel.unlink()
    monkeypatch.setenv("ETCLI_OFFLINE", "1")
    assert not needs_download(AARCH64)
    assert wheel_for(AARCH64) == package


@pytest.mark.usefixtures("without_pip")
def test_a_damaged_cache_is_fetched_again(make_wheel: Callable[..., Path]) -> None:
    make_wheel()
    package = wheel_for(AARCH64)
    (package.libraries / "libexecutorch.so").write_bytes(b"\x7fELF cut short")
    assert wheel_for(AARCH64) == package
    (package.cmake_dir / "executorch-config.cmake").unlink()
    assert wheel_for(AARCH64) == package


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize(
    ("members", "code", "words"),
    [
        ({"executorch/lib/libexecutorch.so": b"\x7fELF"}, "elf.invalid", "not a readable ELF"),
        ({"executorch/lib/libexecutorch.so": None}, "executorch.broken", "lacks lib/libexecutorch.so"),
        ({"executorch/version.py": b'__version__ = "9.9.9"\n'}, "executorch.broken", "version 9.9.9"),
        ({"executorch/lib/../../../evil": b"x"}, "executorch.wheel", "not a plain relative path"),
    ],
)
def test_a_wrong_wheel_leaves_nothing(
    make_wheel: Callable[..., Path], tmp_path: Path, members: dict[str, bytes | None], code: str, words: str
) -> None:
    make_wheel(members)
    with pytest.raises(ToolError, match=re.escape(words)) as caught:
        wheel_for(AARCH64)
    assert caught.value.problems[0].code == code
    assert [
        path.name for path in (tmp_path / "cache" / "executorch").iterdir() if not path.name.endswith(".lock")
    ] == []
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize(
    ("offset", "value"),
    [(6, b"\x63\0"), (10, b"\x63\0"), (8, b"\1\0"), (10, b"\x08\0"), (10, b"\x0c\0"), (10, b"\x0e\0")],
    ids=["a later zip", "no method", "encrypted", "no deflate stream", "no bzip2 stream", "no lzma stream"],
)
def test_a_wheel_that_cannot_be_unpacked_is_damaged(
    make_wheel: Callable[..., Path], tmp_path: Path, offset: int, value: bytes
) -> None:
    wheel = make_wheel({"executorch/lib/more.txt": b"\xff" * 64})
    content = bytearray(wheel.read_bytes())
    # its entry in the list at the end, whose name stands behind 46 bytes
    start = content.rindex(b"executorch/lib/more.txt") - 46
    content[start + offset : start + offset + 2] = value
    wheel.write_bytes(content)
    with pytest.raises(ToolError, match="is damaged") as caught:
        wheel_for(AARCH64)
    assert caught.value.problems[0].code == "executorch.wheel"
    assert not [path for path in (tmp_path / "cache" / "executorch").iterdir() if path.suffix != ".lock"]


@pytest.mark.usefixtures("without_pip")
def test_a_wheel_of_another_commit_is_refused(make_wheel: Callable[..., Path]) -> None:
    version = f'__version__ = "{host_package().version}"\ngit_version = "{"0" * 40}"\n'
    make_wheel({"executorch/version.py": version.encode()})
    with pytest.raises(ToolError, match="was built from commit 0000"):
        wheel_for(AARCH64)


@pytest.mark.usefixtures("without_pip")
def test_a_wheel_for_another_machine_is_refused(make_wheel: Callable[..., Path]) -> None:
    make_wheel({"executorch/lib/libexecutorch.so": (host_package().libraries / "libexecutorch.so").read_bytes()})
    with pytest.raises(ToolError, match="EM_X86_64"):
        wheel_for(AARCH64)


def test_two_at_once_fetch_it_once(make_wheel: Callable[..., Path], without_pip: list[str]) -> None:
    make_wheel()
    found: list[ExecutorchPackage] = []
    threads = [threading.Thread(target=lambda: found.append(wheel_for(AARCH64))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert without_pip == [f"executorch=={host_package().release}"]
    assert len(found) == 3
    assert len(set(found)) == 1


@pytest.mark.usefixtures("without_pip")
def test_a_schema_that_disagrees_with_the_runtime(make_wheel: Callable[..., Path]) -> None:
    make_wheel({"executorch/schema/program.fbs": b'file_identifier "ET99";\n'})
    with pytest.raises(ToolError, match="disagree about the program format"):
        wheel_for(AARCH64).program_identifier()
