"""One module per kind of runner, chosen by `run.runner`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etcli.run.runners.base import Job, Runner
from etcli.run.runners.etcli_runner import EtcliRunner

RUNNERS: Mapping[str, Runner] = MappingProxyType({"etcli": EtcliRunner()})

__all__ = ["RUNNERS", "Job", "Runner"]
