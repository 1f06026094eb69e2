"""Results as people read them: one function a verb, each prints what its verb returned."""

from __future__ import annotations

from etcli.cli.show.builds import built, deployed
from etcli.cli.show.exports import exported
from etcli.cli.show.inspections import inspected
from etcli.cli.show.lists import archived, device, devices, following, needs, recipes, started
from etcli.cli.show.programs import differences
from etcli.cli.show.runs import compared, measured, ran, smoked

__all__ = [
    "archived",
    "built",
    "compared",
    "deployed",
    "device",
    "devices",
    "differences",
    "exported",
    "following",
    "inspected",
    "measured",
    "needs",
    "ran",
    "recipes",
    "smoked",
    "started",
]
