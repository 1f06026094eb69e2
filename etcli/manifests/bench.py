"""What `etcli bench` measured on one device. `--compare` reads it again, from whoever wrote it: every number is checked."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from etcli.manifests.base import Manifest, Part, RecipeName
from etcli.manifests.quantised import Quality
from etcli.manifests.run_record import DeviceFacts, Sampling

Number = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Celsius = Annotated[float, pydantic.Field(gt=-100, lt=500, allow_inf_nan=False)]


class Sensors(Part):
    """A device's temperatures in degrees Celsius by the sensor's name, and each processor core's clock in MHz; empty where it does not tell.

    `throttling` is Android's own word for how far it has slowed down because of heat (0 not at all, 6 about to shut down).
    """

    temperatures_c: dict[str, Celsius] = pydantic.Field(default_factory=dict)
    clocks_mhz: tuple[Number, ...] = ()
    throttling: int | None = pydantic.Field(default=None, ge=0, le=6)

    @property
    def hottest_c(self) -> float | None:
        """The highest of the temperatures."""
        return max(self.temperatures_c.values(), default=None)

    @property
    def clock_mhz(self) -> float | None:
        """The mean over the cores."""
        return sum(self.clocks_mhz) / len(self.clocks_mhz) if self.clocks_mhz else None


class Figure(Part):
    """One quantity over all counted runs; no median where no run could measure it. `better` tells in which sense it compares, if in any."""

    name: str
    unit: str
    better: Literal["more", "less", "neither"]
    median: Number | None
    low: Number | None
    high: Number | None
    values: tuple[Number, ...]

    @property
    def spread(self) -> float | None:
        """`high - low` as a part of the median, where that says something."""
        if self.better == "neither" or self.median is None or self.low is None or self.high is None or not self.median:
            return None
        return (self.high - self.low) / self.median


class BenchRun(Part):
    """One counted run. Seconds, tokens a second, bytes; None and empty where its runner does not tell.

    Attributes:
        token_s: when each token came, since the prompt's first call.
        prefill_chunk_s: of the prefill, each chunk's time.
        chunk_s: of all one-token calls, each chunk's time.
        steps: one-token calls.
    """

    prefill_tokens_per_s: Number | None
    decode_tokens_per_s: Number | None
    time_to_first_token_s: Number | None
    load_s: Number | None
    peak_memory_bytes: int | None = pydantic.Field(ge=0)
    new_tokens: int = pydantic.Field(ge=0)
    token_s: tuple[Number, ...] = ()
    prefill_chunk_s: tuple[Number, ...] = ()
    chunk_s: tuple[Number, ...] = ()
    steps: int = pydantic.Field(default=0, ge=0)
    before: Sensors = Sensors()
    after: Sensors = Sensors()

    @property
    def token_latencies_s(self) -> tuple[float, ...]:
        """Seconds from each token to the next."""
        return tuple(max(0.0, after - before) for before, after in zip(self.token_s, self.token_s[1:], strict=False))


class MemorySample(Part):
    """Resident bytes of the runner's process, `t_s` seconds after it started."""

    t_s: Number
    resident_bytes: int = pydantic.Field(ge=0)


class MemoryTrace(Part):
    """The runner's memory over one run that is not counted, and when it was loaded, had read the prompt, and had ended."""

    samples: tuple[MemorySample, ...] = ()
    loaded_s: Number | None = None
    first_token_s: Number | None = None
    ended_s: Number | None = None


class BenchReport(Manifest):
    """Figures of one device. Those of an emulated device, or of the simulated NPU, say nothing of a phone.

    `measured_at` is UTC in ISO 8601; `bundle_sha256` is that of the bundle's manifest, which tells whether two reports are of one model.
    """

    name: RecipeName
    runner: str
    target: str
    device: DeviceFacts
    measured_at: str
    etcli: str
    bundle_sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
    threads: int | None
    prompt_tokens: int = pydantic.Field(ge=0)
    new_tokens: int = pydantic.Field(ge=0)
    warm_up: int = pydantic.Field(ge=0)
    runs: int = pydantic.Field(ge=1)
    figures: tuple[Figure, ...]
    each: tuple[BenchRun, ...]
    memory: MemoryTrace = MemoryTrace()
    simulated: bool = False
    quality: Quality | None = None
    prompt_sha256: str | None = pydantic.Field(default=None, description="of the prompt's ids, comma-separated")
    runner_sha256: str | None = pydantic.Field(default=None, description="of the program that ran")
    sampling: Sampling | None = pydantic.Field(default=None, description="None: greedy decoding")

    def figure(self, name: str) -> Figure | None:
        """The figure of that name."""
        return next((figure for figure in self.figures if figure.name == name), None)
