"""One module per kind of runner, chosen by `run.runner`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etcli.run.runners.base import Job, Launch, Reader, Runner
from etcli.run.runners.etcli_runner import EtcliRunner
from etcli.run.runners.mtk_runner import MtkRunner

RUNNERS: Mapping[str, Runner] = MappingProxyType({"etcli": EtcliRunner(), "mtk": MtkRunner()})

__all__ = ["RUNNERS", "Job", "Launch", "Reader", "Runner"]
