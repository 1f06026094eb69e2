"""A plugin of the tests: none takes what the user's own environment names, an NDK, a checkout of ExecuTorch, a phone's SDK or a setting of etcli's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from etcli.tables.ndk import ndk_facts
from etcli.tables.neuropilot import neuropilot
from etcli.toolchain.executorch import finding, flatc
from etcli.toolchain.neuropilot import ENVIRONMENT

KEPT = ("ETCLI_CACHE_DIR", "ETCLI_OFFLINE")
"""Where tests may put what they fetch, and whether they may, is for who starts them to say."""

_PREFIXES = ("ETCLI_", "HF_")


def named_by_users() -> set[str]:
    """Variables of the environment, set or not, that the product reads for a user's choice. Those of adb are `device_fixtures`'."""
    libraries = (library.environment for library in neuropilot().libraries)
    tools = (*ndk_facts().variables, *ndk_facts().sdk_variables, finding.VARIABLE, flatc.VARIABLE, ENVIRONMENT)
    return {*tools, *libraries}


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """Every test begins without them; what a test sets for itself is gone behind it. Modules see them while they are collected."""
    prefixed = {name for name in os.environ if name.startswith(_PREFIXES) and name not in KEPT}
    with pytest.MonkeyPatch.context() as patch:
        for name in named_by_users() | prefixed:
            patch.delenv(name, raising=False)
        yield
