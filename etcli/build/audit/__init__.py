"""The audit of `stage/`: whether what came out of a build can start on its target, every fault reported before anything is pushed."""

from etcli.build.audit.auditing import Audit, audit

__all__ = ["Audit", "audit"]
