"""The verbs by name, without importing any of them."""

from __future__ import annotations

# verb -> help line shown by `etcli --help`; each lives in `etcli/cli/<verb>.py` as `command`.
VERBS = {
    "validate": "Check recipe and checkpoint from headers alone; report every problem at once.",
    "doctor": "Show what this recipe needs on this machine and device, and how to get it.",
    "export": "Turn the checkpoint into a bundle of .pte chunks.",
    "build": "Render and compile the runner for a target, and audit the result.",
    "deploy": "Put bundle and binaries on the device, sending only what differs.",
    "run": "Run the Llama runner on the device and stream the answer.",
    "smoke": "All four stages, then compare the device's tokens with the eager reference.",
    "bench": "Measure prefill and decode speed, load time and peak memory.",
    "inspect": "Look into a .pte, a bundle, a build, an ELF file or a checkpoint.",
    "device": "List, show, start and stop devices.",
    "bundle": "Pack, unpack and verify bundles.",
    "recipe": "List, show and start recipes.",
    "clean": "Remove what a recipe left in the workspace, or on the device.",
}
