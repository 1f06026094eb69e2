"""A tool that could have come from several places, and why it came from this one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Chosen:
    """A tool that a build takes: `tool` is its name with its release, `root` its folder, None where it is still to be fetched; `why` says what named it
    and by which rule it goes before what else there is."""

    tool: str
    root: Path | None
    why: str

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.tool}{f' in {self.root}' if self.root is not None else ''}: {self.why}"
