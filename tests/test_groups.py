"""What a module's fixture makes is made once in a parallel run: the tests that share it stay in one process."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="module")
def made_once() -> int:
    return os.getpid()


@pytest.mark.parametrize("number", range(2))
def test_those_that_share_a_fixture_are_a_group(request: pytest.FixtureRequest, made_once: int, number: int) -> None:
    group = request.path.stem
    assert request.node.get_closest_marker("xdist_group").args == (group,)
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.getoption("loadgroup"):
        # by this word in its id, and by nothing else, the scheduler knows the group
        assert request.node.nodeid.endswith(f"@{group}")
