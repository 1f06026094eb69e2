"""Reports of benchmarks as `etcli bench` makes them, without a device; and a runner that makes them with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import samples

from etcli.manifests.bench import BenchReport, BenchRun, MemorySample, MemoryTrace, Sensors
from etcli.manifests.run_record import DeviceFacts
from etcli.verbs.bench.figures import figures_of

DEVICE = DeviceFacts(serial="phone-1", model="Phone", soc="MT6991Z", abi="arm64-v8a", os="Android 16", emulated=False)


def make_report(rates: tuple[float, ...] = (10.0, 11.0, 12.0), **changes: Any) -> BenchReport:
    """A report of runs with these decode rates, a second of prefill each; `changes` replace its fields."""
    each = tuple(
        BenchRun(
            prefill_tokens_per_s=20.0,
            decode_tokens_per_s=rate,
            time_to_first_token_s=1.0,
            load_s=0.5,
            peak_memory_bytes=600_000_000,
            new_tokens=5,
            token_s=tuple(1.0 + index / rate for index in range(5)),
            prefill_chunk_s=(0.6, 0.4),
            chunk_s=(2.5 / rate, 1.5 / rate),
            steps=4,
            before=Sensors(temperatures_c={"cpu": 40.0 + number}, clocks_mhz=(2000.0,)),
            after=Sensors(temperatures_c={"cpu": 41.0 + number}, clocks_mhz=(1800.0,)),
        )
        for number, rate in enumerate(rates)
    )
    trace = MemoryTrace(
        samples=tuple(MemorySample(t_s=index / 10, resident_bytes=index * 50_000_000) for index in range(12)),
        loaded_s=0.5,
        first_token_s=1.0,
        ended_s=1.2,
    )
    fields: dict[str, Any] = {
        "name": "tiny",
        "runner": "etcli",
        "target": "android",
        "device": DEVICE,
        "measured_at": "2026-01-02T03:04:05+00:00",
        "etcli": "0",
        "bundle_sha256": "ab" * 32,
        "threads": 4,
        "prompt_tokens": 20,
        "new_tokens": 5,
        "warm_up": 1,
        "runs": len(each),
        "figures": figures_of(each),
        "each": each,
        "memory": trace,
    }
    return BenchReport(**{**fields, **changes})


def write_document(path: Path, *reports: BenchReport) -> Path:
    """What `etcli bench --json` prints of one report, or of several devices."""
    plain = [report.model_dump(mode="json") for report in reports]
    result = plain[0] if len(plain) == 1 else {"devices": plain}
    document = {
        "schema_version": 1,
        "command": "bench",
        "ok": True,
        "exit": 0,
        "result": result,
        "warnings": [],
        "errors": [],
    }
    path.write_text(json.dumps(document))
    return path


def counting_runner(rates: list[float], *, hold: str = "") -> str:
    """A runner whose decode rate is the next of `rates` each time it is started; `hold` is done between start and the rest."""
    lines = [samples.answer_lines([3, 4, 5], stop_reason="max_new_tokens", decode_tokens_per_s=rate) for rate in rates]
    cases = "\n".join(
        f"{number}) " + "".join(f"printf '%s\\n' '{line}'\n" for line in run[1:]) + ";;"
        for number, run in enumerate(lines)
    )
    start = json.dumps(json.loads(lines[0][0]) | {"pid": 0}).replace('"pid": 0', "\"pid\": '$$'")
    return (
        "#!/bin/sh\n"
        "count=$(cat count 2>/dev/null || echo 0); echo $((count + 1)) > count\n"
        f"echo '{start}'\n{hold}\ncase $count in\n{cases}\nesac\n"
    )
