"""Facts out of properties, as phones and virtual devices list them."""

from __future__ import annotations

from etcli.device.facts import device_facts, parse_properties

PHONE = """\
[dalvik.vm.heapsize]: [512m]
[persist.sys.boot.reason.history]: [reboot,1754000000
reboot,userrequested,1753000000]
[ro.board.platform]: [mt6991]
[ro.build.version.release]: [15]
[ro.product.cpu.abi]: [arm64-v8a]
[ro.product.model]: [A [special] phone]
[ro.soc.model]: [MT6991]
[ro.empty]: []
"""


def test_properties_of_a_phone() -> None:
    found = parse_properties(PHONE)
    assert found["persist.sys.boot.reason.history"] == "reboot,1754000000\nreboot,userrequested,1753000000"
    assert found["ro.product.model"] == "A [special] phone"
    assert found["ro.empty"] == ""
    assert found["dalvik.vm.heapsize"] == "512m"


def test_facts_of_a_phone() -> None:
    facts = device_facts("S", parse_properties(PHONE))
    assert facts.model_dump() == {
        "serial": "S",
        "model": "A [special] phone",
        "soc": "MT6991",
        "abi": "arm64-v8a",
        "os": "Android 15",
        "emulated": False,
        "soc_properties": {"ro.board.platform": "mt6991", "ro.soc.model": "MT6991"},
    }


def test_older_phones_tell_the_platform_only() -> None:
    assert device_facts("S", {"ro.board.platform": "mt6893"}).soc == "mt6893"


def test_a_device_that_tells_nothing() -> None:
    facts = device_facts("S", {})
    assert (facts.model, facts.soc, facts.abi, facts.emulated) == ("unknown", "unknown", "unknown", False)


def test_lines_that_are_no_properties() -> None:
    assert parse_properties("\ngarbage\n[a]: [b]\n") == {"a": "b"}
