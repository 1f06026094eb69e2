"""Making the AQLM folder: what is kept when it is cut short, two processes at once, a full disk, and what is said of it all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_export import load_document

from etcli.common.errors import EtcliError, ExportError, InterruptedByUser
from etcli.export.aqlm import making
from etcli.export.aqlm.estimates import needs
from etcli.export.source import checkpoint_source, quantising_needs
from etcli.manifests.model import ModelConfig, RopeConfig
from etcli.output.console import Console

QUIET = Console(verbosity=-1)
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def source(random_llama: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network of three layers, and a cache of the test's own."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    return random_llama(tokenizer=True, num_hidden_layers=3)


def document(source: Path) -> dict[str, Any]:
    return {
        "name": "small",
        "model": {"source": str(source), "quantize": "aqlm"},
        "export": {"precision": "aqlm", "chunks": 1, "shapes": ["8t32c", "1t32c"]},
    }


def short(*_args: object) -> list[list[int]]:
    return [list(range(5, 65)), list(range(70, 100))]


def start(source: Path) -> subprocess.Popen[str]:
    """`checkpoint_source` in a process of its own, with a calibration of 90 tokens."""
    code = f"""
    import json, sys, time
    sys.path.insert(0, {str(SUPPORT)!r})
    from small_export import load_document
    from etcli.common.errors import EtcliError
    from etcli.export.aqlm import making
    from etcli.export.source import checkpoint_source
    from etcli.output.console import Console
    making.calibration_ids = lambda *_: {short()!r}
    try:
        print(checkpoint_source(load_document(json.loads(sys.argv[1])), Console()))
    except EtcliError as error:
        print(json.dumps([[problem.code, problem.message, problem.hint] for problem in error.problems]))
        sys.exit(int(error.exit))
    """
    argv = [sys.executable, "-u", "-c", textwrap.dedent(code), json.dumps(document(source))]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def made_here(source: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(making, "calibration_ids", short)
    return checkpoint_source(load_document(document(source)), QUIET)


def unfinished(cache: Path) -> list[str]:
    return sorted(path.name for folder in (cache / "aqlm").glob("*.unfinished") for path in folder.iterdir())


def cut_short(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Have `action` called when the worker has finished its first layer."""
    run = making.run_isolated

    def watched(module: str, job: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        heard = options.pop("on_event")

        def on_event(event: Mapping[str, Any]) -> None:
            heard(event)
            if event["event"] == "layer":
                action()

        return run(module, job, on_event=on_event, **options)

    monkeypatch.setattr(making, "run_isolated", watched)


def kill_worker() -> None:
    for child in psutil.Process().children():
        if "etcli.export.aqlm.worker" in child.cmdline():
            child.kill()


def test_a_killed_worker_is_explained_and_its_layers_are_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = made_here(source, monkeypatch)
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "other"))
    with monkeypatch.context() as patch:
        cut_short(patch, kill_worker)
        with pytest.raises(ExportError) as killed:
            made_here(source, monkeypatch)
    (problem,) = killed.value.problems
    assert problem.code == "export.worker_killed"
    assert "the quantiser was killed by SIGKILL" in problem.message
    assert "finished layers are kept" in (problem.hint or "")
    assert "layer-0000.safetensors" in unfinished(tmp_path / "other")
    assert not [path for path in (tmp_path / "other" / "aqlm").iterdir() if path.suffix not in (".lock", ".unfinished")]

    begun: list[int] = []
    run = making.run_isolated

    def watched(module: str, job: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        heard = options.pop("on_event")

        def on_event(event: Mapping[str, Any]) -> None:
            if event["event"] == "begin":
                begun.append(event["layers"])
            heard(event)

        return run(module, job, on_event=on_event, **options)

    monkeypatch.setattr(making, "run_isolated", watched)
    again = made_here(source, monkeypatch)
    assert begun[0] >= 1
    assert unfinished(tmp_path / "other") == []
    for path in right.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


def test_ctrl_c_ends_the_worker_and_leaves_nothing_half_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    cut_short(monkeypatch, interrupt)
    with pytest.raises(InterruptedByUser) as interrupted:
        made_here(source, monkeypatch)
    assert interrupted.value.problems[0].code == "aqlm.interrupted"
    assert not [child for child in psutil.Process().children() if "etcli.export.aqlm.worker" in child.cmdline()]
    assert not [path for path in (tmp_path / "cache" / "aqlm").iterdir() if path.suffix not in (".lock", ".unfinished")]


def test_two_processes_that_want_the_same_wait_for_one_another(source: Path, tmp_path: Path) -> None:
    both = [start(source), start(source)]
    told = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    (first, said), (second, also_said) = told
    assert first == second
    assert (said + also_said).count("Quantising") == 1
    # one may have come when the other had done
    assert (said + also_said).count("waiting for another process that quantises") <= 1
    assert len(list((tmp_path / "cache" / "aqlm").iterdir())) == 2


def test_a_killed_parent_takes_its_worker_along(source: Path, tmp_path: Path) -> None:
    process = start(source)
    deadline = time.monotonic() + 120
    workers: list[psutil.Process] = []
    while not workers and time.monotonic() < deadline and process.poll() is None:
        workers = psutil.Process(process.pid).children()
        time.sleep(0.05)
    assert workers
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
    # the lock went with the process
    done = start(source)
    out, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors
    assert Path(out.strip()).is_dir()


def test_a_disk_without_room_is_told_before_the_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 1000})())
    monkeypatch.setattr(making, "run_isolated", lambda *_args, **_options: pytest.fail("work was begun"))
    with pytest.raises(ExportError) as refused:
        made_here(source, monkeypatch)
    assert refused.value.problems[0].code == "aqlm.no_space"
    assert "ETCLI_CACHE_DIR" in (refused.value.problems[0].hint or "")


def test_a_cache_that_cannot_be_written_is_told(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "aqlm").write_text("a file stands here")
    with pytest.raises(EtcliError) as refused:
        made_here(source, monkeypatch)
    assert refused.value.problems[0].code == "aqlm.cache"


def test_too_little_memory_is_a_warning(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(making, "calibration_ids", short)
    console = Console(verbosity=-1)
    checkpoint_source(load_document(document(source)), console)
    assert "aqlm.memory" in {warning.code for warning in console.warnings}


LLAMA_8B = ModelConfig(
    architecture="LlamaForCausalLM",
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    context_length=8192,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=5e5),
    tied_embeddings=False,
)


def test_what_a_large_network_takes_is_told_honestly() -> None:
    small = LLAMA_8B.model_copy(update={"hidden_size": 2048, "intermediate_size": 8192, "num_layers": 16})
    one, two, less = needs(LLAMA_8B, 8000, 1), needs(LLAMA_8B, 8000, 2), needs(small, 8000, 1)
    assert one.seconds > 3600  # hours
    assert one.seconds > two.seconds > 0.45 * one.seconds
    assert less.seconds < 0.2 * one.seconds
    # the moments of 14336 inputs in several copies, and two layers in float32
    assert one.memory_bytes > 5 * 14336 * 14336 * 4 + 2 * 4 * 218_000_000
    # codes of 2 bits a weight and plain embedding and head, beside the finished layers
    assert one.disk_bytes > 2 * (2 * 2 * 128256 * 4096 + 2 * 6_979_000_000 // 8)
    assert quantising_needs(LLAMA_8B).memory_bytes == one.memory_bytes
