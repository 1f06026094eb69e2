"""Upstream's `mtk_llama_executor_runner`, as ExecuTorch's `examples/mediatek` builds it, started with flags that all come from the bundle's manifest.

It compares none of its flags with the programs, encodes the prompt itself, knows one end id and gives exit status 0 to most failures (ExecuTorch
at cff6f4dd32). What it cannot do is refused here, or said before it runs; what it did is judged by `mtk_output.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from etcli.common.errors import CheckpointError, EtcliError, UsageError
from etcli.device.deployed import PROMPT_TEXT, RUNNER_FLAGS
from etcli.manifests.bundle import BundleManifest
from etcli.recipe.upstream import bundle_problems, io_types, prompt_shape, rope_remark
from etcli.run.runners.base import Job, Launch, Reader, Remark
from etcli.run.runners.mtk_output import MtkReader
from etcli.tables.neuropilot import neuropilot
from etcli.tokenizer.base import control_text
from etcli.tokenizer.chat import prompt_as_text
from etcli.tokenizer.upstream import UpstreamTokenizer, upstream_tokenizer

_LONGEST_ARGUMENTS = 3000
"""Characters. Old adb daemons take at most 4096 bytes of command."""

_STATUSES = {
    0: "This runner gives exit status 0 also when it cannot load the tokenizer, the prompt is empty, or an id has no text: "
    "`etcli deploy` puts the tokenizer's files back; its messages say which it was.",
    1: "It knows a flag or a value not: the binary is of another ExecuTorch release. etcli gives the flags of 1.5.",
    134: "A check of this runner failed; its last message says which: most often a missing file, another number of inputs or outputs than it "
    "binds, or memory-planned ones.",
    136: "It divided by zero, as it does for a type or a number of heads that it does not know: the binary is of another ExecuTorch release.",
    139: "It crashed. Before its first message: libneuron_buffer_allocator.so is not where it looks (put it beside the binary given to "
    "--runner-binary). After it: the NPU could not restore a network, or the binary is of another release than the bundle.",
}


class MtkRunner:
    """Implements `Runner`."""

    program = "mtk_llama_executor_runner"
    activity = "running (this runner gives its tokens at the end)"
    missing_hint = (
        "Build it from a checkout of ExecuTorch (etcli build --target android --executorch PATH) and deploy again, or add --runner-binary PATH, "
        "or use run.runner: etcli."
    )

    @property
    def opens(self) -> tuple[str, ...]:
        """See `Runner.opens`."""
        return (*neuropilot().device_libraries, *neuropilot().performance_libraries)

    def launch(self, job: Job) -> Launch:
        """See `Runner.launch`. Flags go into a file where there are too many for a command line."""
        problems = list(bundle_problems(job.bundle))
        rope = rope_remark(job.bundle.model)
        if rope is not None and not job.forced:
            hint = "Use run.runner: etcli, which reads the exported table, or add --force to see what the mtk runner makes of it."
            problems.append(UsageError.problem(rope, code="mtk.rope_scaling", hint=hint))
        if job.sampling is not None:
            problems.append(
                UsageError.problem(
                    "the mtk runner takes the likeliest token each time and cannot be told to draw one",
                    code="mtk.sampling",
                    hint="Use run.runner: etcli, or run.temperature: 0.",
                )
            )
        if job.interactive:
            problems.append(
                UsageError.problem(
                    "the mtk runner answers one prompt and ends",
                    code="mtk.interactive",
                    hint="Use run.runner: etcli, or leave --interactive out.",
                )
            )
        if problems:
            raise EtcliError.many(problems)
        reader = _tokenizer(job)
        remarks = [Remark("mtk.rope_scaling", f"{rope}.")] if rope is not None else []
        text, remark = _prompt(job, reader)
        if remark is not None:
            remarks.append(remark)
        remarks += _endings(job, reader)
        if job.threads is not None:
            remarks.append(
                Remark("mtk.threads", "the mtk runner cannot be told a number of threads; run.threads is left aside")
            )
        words = [f"--{name}={value}" for name, value in flags(job.bundle, reader, job.max_new_tokens).items()]
        files = {PROMPT_TEXT: text.encode()}
        if sum(len(word) + 1 for word in words) > _LONGEST_ARGUMENTS:
            files[RUNNER_FLAGS] = "".join(f"{word}\n" for word in words).encode()
            words = [f"--flagfile={RUNNER_FLAGS}"]
        return Launch(tuple(words), _stop_ids(job, reader), files, tuple(remarks))

    def reader(self, job: Job) -> Reader:
        """See `Runner.reader`."""
        tokenizer = _tokenizer(job)
        return MtkReader(
            prompt_ids=job.prompt_ids,
            max_new_tokens=job.max_new_tokens,
            stop_ids=_stop_ids(job, tokenizer),
            eos_id=tokenizer.eos_id,
            cache=prompt_shape(job.bundle).cache,
            batch=prompt_shape(job.bundle).tokens,
            chunks=len(job.bundle.chunks),
        )

    def explain(self, status: int) -> str | None:
        """See `Runner.explain`."""
        return _STATUSES.get(status)


def flags(bundle: BundleManifest, tokenizer: UpstreamTokenizer, max_new_tokens: int) -> dict[str, str | int]:
    """Every flag of the runner and its value; paths are relative to the deployment's folder.

    The runner reads no value of `vocab_size`, `bos_token` and `eos_token`; they are given as they are for those who read the command line.
    """
    model, shape, types = bundle.model, prompt_shape(bundle), io_types(bundle)
    folder = f"bundle/{bundle.tokenizer.path}".rpartition("/")[0]
    return {
        "prompt_token_batch_size": shape.tokens,
        "cache_size": shape.cache,
        "hidden_size": model.hidden_size,
        "num_head": model.num_heads,
        "num_layer": model.num_layers,
        "head_dim": model.head_dim,
        "window_size": 0,
        # Where the cache is full the oldest tokens would fall out without a word: the answer ends there instead, as with other runners.
        "max_token_length": shape.cache,
        "partial_rotary_factor": 1,
        "rot_emb_base": repr(model.rope.theta),
        "input_type": types.input,
        "output_type": types.output,
        "cache_type": types.cache,
        "mask_type": types.mask,
        "rot_emb_type": types.rotary,
        "token_embedding_path": f"bundle/{bundle.embedding.path}",
        **_model_paths(bundle),
        "tokenizer_path": folder if tokenizer.path == "." else f"{folder}/{tokenizer.path}",
        "tokenizer_type": tokenizer.type,
        "vocab_size": tokenizer.size,
        **({} if tokenizer.bos_id is None else {"bos_token": tokenizer.bos_id}),
        "eos_token": tokenizer.eos_id,
        # It counts the tokens after the first one.
        "max_response": max_new_tokens - 1,
        "prompt_file": PROMPT_TEXT,
    }


def _model_paths(bundle: BundleManifest) -> dict[str, str]:
    """A file a chunk in the order of execution: packages, or the files of each shape."""
    chunks = sorted(bundle.chunks, key=lambda chunk: chunk.index)
    if bundle.layout == "package":
        return {"model_package_paths": ",".join(f"bundle/{chunk.files[0].path}" for chunk in chunks)}
    paths = {}
    for name, tokens in (("prompt_model_paths", prompt_shape(bundle).tokens), ("gen_model_paths", 1)):
        files = [
            next(file.path for file in chunk.files if any(method.shape.tokens == tokens for method in file.methods))
            for chunk in chunks
        ]
        paths[name] = ",".join(f"bundle/{path}" for path in files)
    return paths


def _tokenizer(job: Job) -> UpstreamTokenizer:
    made = upstream_tokenizer(job.tokenizer, job.bundle_folder / job.bundle.tokenizer.path, job.bundle.model.stop_ids)
    if made.size > job.bundle.model.vocab_size:
        raise CheckpointError(
            f"the tokenizer has {made.size:,} ids, the model's logits {job.bundle.model.vocab_size:,}: the mtk runner would read beyond them",
            code="tokenizer.vocabulary",
            hint="Tokenizer and weights are not of the same model.",
        )
    return made


def _stop_ids(job: Job, reader: UpstreamTokenizer) -> tuple[int, ...]:
    return tuple(sorted({*job.bundle.model.stop_ids, reader.eos_id}))


def _prompt(job: Job, reader: UpstreamTokenizer) -> tuple[str, Remark | None]:
    """The text of which the runner makes exactly `job.prompt_ids`, and what to say of it.

    Raises:
        UsageError: `mtk.prompt`, there is none.
    """
    text = prompt_as_text(job.tokenizer, job.prompt, chat=job.chat, system=job.system)
    bos = None if reader.bos_id is None else control_text(job.tokenizer, reader.bos_id)
    remark = None
    if job.chat and bos is not None and text.startswith(bos):
        text = text[len(bos) :]
        remark = Remark(
            "mtk.double_bos",
            f"the chat template begins with {bos}, which the mtk runner puts before every prompt itself: it is left out of the text, so that there is one",
        )
    found = reader.encode(job.tokenizer, text)
    if "\0" in text:
        raise _unrepresentable("it holds a NUL character")
    if not text:
        raise _unrepresentable("there is no text in it")
    if tuple(found) != job.prompt_ids:
        raise _unrepresentable(_reason(job, reader, found))
    return text, remark


def _reason(job: Job, reader: UpstreamTokenizer, found: list[int]) -> str:
    if tuple(found[1:]) == job.prompt_ids and reader.bos_id is not None:
        return f"the runner puts {control_text(job.tokenizer, reader.bos_id) or reader.bos_id} before every prompt, and this model has none there"
    if not reader.special and job.chat:
        return (
            "the chat template writes special tokens, and the runner's reader of llama2c files takes them for letters"
        )
    if reader.special and any(text in job.prompt + (job.system or "") for text in job.tokenizer.control_texts):
        return "it spells a special token of this model, and the runner would take that for the token"
    place = next(
        (at for at, (a, b) in enumerate(zip(found, job.prompt_ids, strict=False)) if a != b),
        min(len(found), len(job.prompt_ids)),
    )
    return f"the runner would make {len(found)} ids of it instead of {len(job.prompt_ids)}, which differ from place {place} on"


def _unrepresentable(why: str) -> UsageError:
    return UsageError(
        f"the mtk runner is given text and cannot be asked this prompt: {why}",
        code="mtk.prompt",
        hint="Use run.runner: etcli, which is given ids; or write the prompt in another way, or with or without --no-chat.",
    )


def _endings(job: Job, reader: UpstreamTokenizer) -> Iterator[Remark]:
    others = [stop for stop in job.bundle.model.stop_ids if stop != reader.eos_id]
    if others:
        named = ", ".join(f"{control_text(job.tokenizer, stop) or '?'} ({stop})" for stop in others[:4])
        yield Remark(
            "mtk.stop_ids",
            f"the mtk runner ends an answer at {control_text(job.tokenizer, reader.eos_id) or '?'} ({reader.eos_id}) alone: it may go on after {named}, "
            "and what it gives after the first stop id is cut off here",
        )
    if job.ignore_stop_ids:
        yield Remark(
            "mtk.ignore_stop_ids",
            "the mtk runner cannot be told to go on after an end id: a run may be shorter than asked for",
        )
