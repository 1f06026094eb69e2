"""Which target fits a device: its ABI and its loader decide, nothing else."""

from __future__ import annotations

import pytest

from etcli.common.errors import DeviceError
from etcli.device.base import RemoteStat
from etcli.device.fit import fitting_targets
from etcli.manifests.run_record import DeviceFacts
from etcli.recipe.loader import load
from etcli.tables.targets import load_targets
from etcli.verbs.targets import build_target


class Phone:
    """As much of a device as the choice asks for."""

    serial = "phone-1"

    def __init__(self, abis: str, *files: str) -> None:
        self._abis, self._files = abis, files

    def properties(self) -> dict[str, str]:
        return {"ro.product.cpu.abilist": self._abis, "ro.product.cpu.abi": self._abis.partition(",")[0]}

    def stat(self, path: str) -> RemoteStat | None:
        return RemoteStat(mode=0o100755, size=1) if path in self._files else None

    def facts(self) -> DeviceFacts:
        return DeviceFacts(serial=self.serial, model="Phone", soc="", abi=self._abis, os="Android 14", emulated=False)


LINKER = load_targets()["android"].interpreter
GLIBC = load_targets()["linux-aarch64"].interpreter


def chosen(phone: Phone, flag: str | None = None, sets: tuple[str, ...] = ()) -> str:
    return build_target(load("smollm2-135m", sets), flag, lambda: phone)  # type: ignore[arg-type, return-value]


def test_a_phone_is_built_for_as_android() -> None:
    phone = Phone("arm64-v8a,armeabi-v7a,armeabi", LINKER)
    assert fitting_targets(phone) == ["android"]  # type: ignore[arg-type]
    assert chosen(phone) == "android"


def test_the_flag_and_the_recipe_go_before_the_device() -> None:
    phone = Phone("arm64-v8a", LINKER)
    assert chosen(phone, "host") == "host"
    assert chosen(phone, None, ("build.target=linux-aarch64",)) == "linux-aarch64"


@pytest.mark.parametrize(
    ("abis", "loader", "target"),
    [("arm64-v8a", GLIBC, "linux-aarch64"), ("x86_64", load_targets()["host"].interpreter, "host")],
)
def test_a_board_with_glibc_is_built_for_as_linux(abis: str, loader: str, target: str) -> None:
    assert chosen(Phone(abis, loader)) == target


@pytest.mark.parametrize(("abis", "loader"), [("armeabi-v7a,armeabi", LINKER), ("x86_64", LINKER)])
def test_phones_of_other_abis_are_refused(abis: str, loader: str) -> None:
    with pytest.raises(DeviceError, match="no target fits device phone-1") as caught:
        chosen(Phone(abis, loader))
    assert "arm64-v8a Android" in (caught.value.problems[0].hint or "")
