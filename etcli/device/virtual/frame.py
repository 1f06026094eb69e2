"""The file tree of a virtual device: a small read-only frame on disk, into which the host's programs and the private /data are bound.

What the programs of the device see:

    /usr, /bin, /sbin, /lib*   the host's, read-only; /lib is a folder of links, so that a foreign loader can stand in it
    /sys/devices/system/cpu    the machine's, read-only
    /system                    bin/sh, bin/getprop, bin/log, bin/logcat, bin/sha256sum, build.prop; with an emulator also its settings and the foreign libraries
    /etc                       users, the loader's cache, and nothing else of the host's
    /data, /tmp                private and writable; /data/local/tmp is where adb users work
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

from etcli.common.errors import Problems, ToolError
from etcli.common.files import remove_tree, write_atomically
from etcli.device.virtual import native
from etcli.device.virtual.properties import properties
from etcli.device.virtual.spec import DeviceFolder, VirtualSpec
from etcli.toolchain import qemu
from etcli.toolchain.programs import apt_hint

SHELL_USER = 2000
"""Android's user id of what comes over adb."""

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/system/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/data/local/tmp",
    "TMPDIR": "/data/local/tmp",
    "SHELL": "/system/bin/sh",
    "USER": "shell",
    "LOGNAME": "shell",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
}

_EM_NUMBERS = {"EM_X86_64": 62, "EM_AARCH64": 183}
_HOST_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
# Programs count processors here; XNNPACK refuses to start without the lists of possible and present ones.
_PROCESSORS = Path("/sys/devices/system/cpu")
_FOREIGN = "/system/emulation"
_EXEC_LIBRARY = "/system/lib64/libetcli_exec.so"
_INIT = "/system/bin/init"
_SHA256SUM = "/system/bin/sha256sum"

_GETPROP = """\
#!/bin/sh
# getprop: every property as [name]: [value]; getprop NAME [DEFAULT]: one value, DEFAULT or an empty line without it.
while IFS= read -r line; do
    if [ $# -eq 0 ]; then
        printf '[%s]: [%s]\\n' "${line%%=*}" "${line#*=}"
    elif [ "${line%%=*}" = "$1" ]; then
        printf '%s\\n' "${line#*=}"
        exit 0
    fi
done < /system/build.prop
if [ $# -gt 0 ]; then
    printf '%s\\n' "${2-}"
fi
"""

_LOG = """\
#!/bin/sh
# log [-p LEVEL] [-t TAG] MESSAGE...: a line of the device's log, in the name of the process that asks.
level=i tag=log
while getopts p:t: option; do
    case $option in
        p) level=$OPTARG ;;
        t) tag=$OPTARG ;;
        *) exit 1 ;;
    esac
done
shift $((OPTIND - 1))
level=$(printf '%s' "$level" | tr 'vdiwef' 'VDIWEF')
printf '%s %5d %5d %s %s: %s\\n' "$(date '+%m-%d %H:%M:%S.%3N')" "$PPID" "$PPID" "$level" "$tag" "$*" >> /data/local/.log
# As logd does, the newest lines are kept.
if [ "$(wc -c < /data/local/.log)" -gt 1048576 ]; then
    tail -c 524288 /data/local/.log | tail -n +2 > "/data/local/.log.$$" && mv -f "/data/local/.log.$$" /data/local/.log
fi
"""

# Without -d the real program stays and waits; nobody needs that here.
_LOGCAT = """\
#!/bin/sh
# logcat -d [-v threadtime] [-b BUFFER]... [-t COUNT] [--pid=PID]; logcat -c empties the log.
count=100000 pid=
while [ $# -gt 0 ]; do
    case $1 in
        -c) rm -f /data/local/.log; exit 0 ;;
        -d) ;;
        -v) [ "$2" = threadtime ] || exit 1; shift ;;
        -b)
            case $2 in
                main | system | crash | events | all) ;;
                *) echo "logcat: Unknown buffer '$2'" >&2; exit 1 ;;
            esac
            shift ;;
        -t) count=$2; shift ;;
        --pid=*) pid=${1#--pid=} ;;
        *) echo "logcat: unknown option -- $1" >&2; exit 1 ;;
    esac
    shift
done
echo '--------- beginning of main'
[ ! -f /data/local/.log ] || tail -n "$count" /data/local/.log | awk -v pid="$pid" 'pid == "" || $3 == pid'
"""


def emulated(spec: VirtualSpec) -> bool:
    """Whether this machine needs an emulator for the device's programs."""
    return platform.machine() != spec.arch


def check_host(spec: VirtualSpec) -> None:
    """See to it that everything that `spec` needs of this machine is there, compiled programs included.

    Raises:
        ToolError: what is missing, all of it; the hints say how to get it.
    """
    problems = Problems()
    if emulated(spec):
        problems.attempt(lambda: qemu.find(spec.target))
        problems.attempt(lambda: _foreign_libraries(spec))
    if problems.attempt(native.init_program) is not None:
        problems.attempt(native.sha256sum_program)
        if emulated(spec):
            problems.attempt(native.exec_library)
    problems.raise_if_any(ToolError)


def assemble(spec: VirtualSpec, folder: DeviceFolder) -> list[str]:
    """Write the frame anew and return bubblewrap's arguments that make the tree.

    Raises:
        ToolError: see `check_host`.
        OSError: the frame cannot be written.
    """
    root = folder.root
    remove_tree(root)
    for name in ("usr", "etc", "system/bin", "system/etc", "system/lib64", "data", "tmp", "proc", "dev", "lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    binds = ["--ro-bind", str(root), "/", "--ro-bind", "/usr", "/usr"]
    binds += _host_folders(root)
    binds += _etc(root)
    _system(root, spec)
    for inside, program in ((_INIT, native.init_program()), (_SHA256SUM, native.sha256sum_program())):
        binds += ["--ro-bind", str(_mount_point(root, inside, program)), inside]
    if _PROCESSORS.is_dir():
        binds += ["--ro-bind", str(_mount_point(root, str(_PROCESSORS), _PROCESSORS)), str(_PROCESSORS)]
    if emulated(spec):
        binds += _emulation(root, spec)
    binds += _data(spec, folder)
    return [*binds, "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--", _INIT]  # noqa: S108 - the device's own /tmp


def _host_folders(root: Path) -> list[str]:
    binds = []
    for name in ("bin", "sbin", "lib32", "lib64"):
        host = Path("/") / name
        if host.is_symlink():
            (root / name).symlink_to(host.readlink())
        elif host.is_dir():
            (root / name).mkdir()
            binds += ["--ro-bind", str(host), str(host)]
    libraries = Path("/lib").resolve()
    if not libraries.is_relative_to("/usr"):
        (root / "host-lib").mkdir()
        binds += ["--ro-bind", str(libraries), "/host-lib"]
        libraries_inside = Path("/host-lib")
    else:
        libraries_inside = libraries
    for entry in libraries.iterdir():
        (root / "lib" / entry.name).symlink_to(libraries_inside / entry.name)
    return binds


def _etc(root: Path) -> list[str]:
    write_atomically(
        root / "etc/passwd",
        f"root:x:0:0::/:/system/bin/sh\nshell:x:{SHELL_USER}:{SHELL_USER}::/data/local/tmp:/system/bin/sh\n",
    )
    write_atomically(root / "etc/group", f"root:x:0:\nshell:x:{SHELL_USER}:\n")
    binds = []
    for name in _HOST_ETC:
        host = Path("/etc") / name
        if host.exists():
            binds += ["--ro-bind", str(_mount_point(root, str(host), host)), str(host)]
    return binds


def _mount_point(root: Path, inside: str, source: Path) -> Path:
    """Make what `source` is bound on; returns `source` with its links resolved."""
    real = source.resolve()
    point = root / inside.lstrip("/")
    if real.is_dir():
        point.mkdir(parents=True, exist_ok=True)
    else:
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()
    return real


def _system(root: Path, spec: VirtualSpec) -> None:
    (root / "system/bin/sh").symlink_to("/bin/sh")
    write_atomically(root / "system/bin/getprop", _GETPROP, mode=0o755)
    write_atomically(root / "system/bin/log", _LOG, mode=0o755)
    write_atomically(root / "system/bin/logcat", _LOGCAT, mode=0o755)
    lines = "".join(f"{name}={value}\n" for name, value in properties(spec).items())
    write_atomically(root / "system/build.prop", lines)


def _emulation(root: Path, spec: VirtualSpec) -> list[str]:
    emulator = spec.target.emulator
    assert emulator is not None  # noqa: S101 - qemu.find has checked it
    inside = "/system/bin/emulator"
    libraries = _foreign_libraries(spec)
    binds = ["--ro-bind", str(_mount_point(root, inside, qemu.find(spec.target))), inside]
    binds += ["--ro-bind", str(_mount_point(root, f"{_FOREIGN}/lib", libraries)), f"{_FOREIGN}/lib"]
    binds += ["--ro-bind", str(_mount_point(root, _EXEC_LIBRARY, native.exec_library())), _EXEC_LIBRARY]
    write_atomically(root / "etc/ld.so.preload", f"{_EXEC_LIBRARY}\n")
    # The foreign loader looks below the prefix first: what the host's loader preloads is nothing for it.
    write_atomically(root / _FOREIGN.lstrip("/") / "etc/ld.so.preload", "")
    words = (str(_EM_NUMBERS[spec.target.machine]), spec.arch, inside, "-cpu", spec.cpu or emulator.cpu, "-L", _FOREIGN)
    write_atomically(root / "system/etc/emulator", "".join(f"{word}\n" for word in words))
    loader = root / spec.target.interpreter.lstrip("/")
    if not loader.is_symlink():
        loader.symlink_to(f"{_FOREIGN}/lib/{loader.name}")
    return binds


def _foreign_libraries(spec: VirtualSpec) -> Path:
    """The folder with the loader and C library of the device's programs on this machine."""
    name = Path(spec.target.interpreter).name
    for folder in (Path(spec.target.sysroot or "/") / "lib", Path("/usr/lib") / spec.target.triple):
        if (folder / name).is_file():
            return folder
    raise ToolError(
        f"the C library of {spec.target.name} programs ({name}) was not found",
        code="virtual_device.libraries",
        hint=apt_hint(spec.target.compiler.apt or f"libc6-{spec.arch}-cross"),
    )


def _data(spec: VirtualSpec, folder: DeviceFolder) -> list[str]:
    if spec.data_limit is not None:
        return ["--size", str(spec.data_limit), "--tmpfs", "/data", "--dir", "/data/local", "--dir", "/data/local/tmp"]
    (folder.data / "local/tmp").mkdir(parents=True, exist_ok=True)
    return ["--bind", str(folder.data), "/data"]
