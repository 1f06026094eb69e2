"""What was built and what was sent, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etcli.output.console import Console
from etcli.output.units import bytes_text, counted, seconds_text

if TYPE_CHECKING:
    from etcli.build.stage import BuildResult
    from etcli.deploy.stage import DeployResult


def built(console: Console, result: BuildResult) -> None:
    """What is staged, as the audit saw it, or the plan; of a dry run what it would be done with."""
    for chosen in result.uses:
        console.print(chosen.line)
    if result.manifest is None:
        for line in result.plan:
            console.print(line)
        console.print(str(result.folder))
        return
    staged = [
        (file.path, bytes_text(file.size), file.elf.machine if file.elf else "", file.reason.split(" by ")[0])
        for file in result.manifest.stage
    ]
    console.table(f"Stage {result.folder / 'stage'}", ("file", "size", "machine", "reason"), staged)
    if result.manifest.library is not None:
        console.print(f"For apps, C interface {result.manifest.library.api}: {result.folder / 'library'}")
    if result.manifest.ndk is not None:
        android = f"Android API level {result.manifest.api_level} and above, {result.manifest.stl}"
        console.print(f"NDK {result.manifest.ndk}: {android}")
    for library in result.manifest.custom_ops:
        console.print(f"{library.name}: {', '.join(library.operators)}, each registered once")
    console.print(
        f"{result.folder} is current" if result.current else f"{result.manifest.target}: built and audited",
        style="green",
    )


def deployed(console: Console, result: DeployResult) -> None:
    """What was sent, kept and removed."""
    if result.dry_run:
        # why a file belongs to the deployment at all is in the JSON document: its text is longer than a terminal
        rows = [(file.path, bytes_text(file.size), file.action, file.why) for file in result.files]
        console.table(f"Plan for {result.serial}:{result.folder}", ("file", "size", "action", "why"), rows)
        for path in result.removed:
            console.print(f"would remove {path} (of an earlier deployment, not part of this one)")
        sent = f"would send {counted(result.sent_files, 'file')}, {bytes_text(result.sent_bytes)}"
        space = ""
        if result.free_bytes is not None:
            space = f"; needs {bytes_text(result.space_bytes)} at the most, {bytes_text(result.free_bytes)} free"
        console.print(f"{sent}; {bytes_text(result.skipped_bytes)} are there already{space}")
        return
    if result.current:
        console.print(f"{result.serial}:{result.folder} is current: nothing sent")
        return
    console.print(
        f"{result.serial}:{result.folder}  sent {counted(result.sent_files, 'file')}, {bytes_text(result.sent_bytes)} "
        f"in {seconds_text(result.seconds)}; {bytes_text(result.skipped_bytes)} were there already"
    )
