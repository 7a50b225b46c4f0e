"""The command `snapreport sample`: write a generated snapshot. The generator is loaded only when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from snapreport import progress
from snapreport.commands.shared import SizeType, force_option, max_memory_option
from snapreport.output_file import cannot_write, check_output
from snapreport.terminal import echo, lines

_LARGEST = 1 << 46  # 64 TiB; no device has more

PRESET_HELP = """\b
Presets (options given beside one win):
  training       four steps of a GPT with 12 layers (the default)
  small          three steps of a small GPT: a file to look at
  serving        requests with key-value caches that grow
  oom            a batch of long documents: out of memory by plain demand
  fragmentation  out of memory although gigabytes are reserved and free
  leak           3 MiB kept in every step
  churn          segments go back to the device in every step
  expandable     expandable segments, batches of many lengths, two streams
  multi-gpu      four devices, expandable segments; the last one runs out
  pools          two CUDA graphs with private pools, frees that are pending
  truncated      the recorder's ring buffer was too small
  pinned         pinned host memory beside the device's
  late           recording began at the third step
  checkpointing  activations are computed again in the backward pass
  compiled       C++ frames, compile_context, user_metadata
  overlap        thousands of long-lived allocations above early frees
  large, huge    920,183 events (107 MB) and 2.83 million (727 MB)

\b
Jobs, a file for each rank (--job NAME -o FOLDER; --ranks, --seed, --steps, --memory, --leak):
  data           8 equal ranks
  pipeline       8 pipeline stages: early ones hold more micro-batches
  tensor         8 ranks with a part of every layer each
  experts        16 ranks, tokens routed unevenly
  straggler      16 equal ranks, of which rank 11 leaks
  oom            64 ranks of experts, of which rank 37 runs out of memory
"""


class Size(SizeType):
    """A number of bytes that a device could have."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = super().convert(value, param, ctx)
        if size > _LARGEST:
            self.fail(f"{value!r} is more than {_LARGEST >> 40} TiB", param, ctx)
        return size


@click.command(name="sample", epilog=PRESET_HELP, context_settings={"show_default": False})
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    help="File to write (- for standard output), .gz and .xz are compressed; with --job a folder.",
)
@click.option("--preset", metavar="NAME", help="Where to start from: see below.")
@click.option("--job", metavar="NAME", help="Write the snapshots of a whole job into the folder -o: see below.")
@click.option("--ranks", type=int, help="Ranks of the job.")
@click.option("--seed", type=int, help="The same seed gives the same file.  [default: 0]")
@click.option("--events", type=int, help="Events wanted on each device.")
@click.option("--steps", type=int, help="Steps wanted, where no number of events is.")
@click.option("--workload", type=click.Choice(["training", "serving", "overlap"]), help="What the program does.")
@click.option("--devices", type=int, help="Devices with a trace.  [default: 1]")
@click.option(
    "--streams", type=int, help="2: batches come on a stream of their own; 3: gradients are reduced on another."
)
@click.option("--private-pools", type=int, help="CUDA graphs, each with a private pool.")
@click.option("--memory", type=Size(), help="Memory of a device.  [default: 24GiB]")
@click.option("--expandable/--no-expandable", default=None, help="Expandable segments.")
@click.option("--max-split-size", type=Size(), help="Blocks of this size or more are never split (max_split_size_mb).")
@click.option("--max-entries", type=int, help="The recorder's ring buffer: of more events, only the last are kept.")
@click.option("--record-from", type=int, metavar="STEP", help="The step at which recording begins.")
@click.option("--snapshot-every", type=int, metavar="STEPS", help="Snapshots taken on the way (snapshot events).")
@click.option("--layers", type=int, help="Layers of the model.  [default: 12]")
@click.option("--hidden", type=int, help="Its width.  [default: 768]")
@click.option("--heads", type=int, help="Its attention heads.  [default: 12]")
@click.option("--sequence", type=int, help="Tokens of a sequence.  [default: 1024]")
@click.option("--batch", type=int, help="Sequences of a batch, or requests at a time.  [default: 8]")
@click.option("--vocabulary", type=int, help="Size of the vocabulary.  [default: 50304]")
@click.option("--vary", type=float, help="Up to this part of a sequence is missing, at random.  [default: 0]")
@click.option(
    "--attention", type=click.Choice(["flash", "eager"]), help="eager keeps the score matrices.  [default: flash]"
)
@click.option("--checkpointing/--no-checkpointing", default=None, help="Activation checkpointing.")
@click.option(
    "--optimizer", type=click.Choice(["foreach", "loop"]), help="AdamW over all parameters at once, or one by one."
)
@click.option("--window", type=int, help="Long-lived allocations of the overlap workload.  [default: 20000]")
@click.option(
    "--oom", type=click.Choice(["none", "demand", "fragmentation"]), help="End in an out-of-memory of this kind."
)
@click.option("--oom-device", type=int, help="The device that runs out.  [default: the last]")
@click.option("--leak", type=Size(), help="Bytes that every step keeps.")
@click.option("--churn", type=int, help="Buffers of 32 MiB that every step gets from the device and gives back.")
@click.option("--cycles", type=int, help="Steps between collections of reference cycles of 8 MiB.")
@click.option("--cache-steps", type=int, help="Steps in which a cache grows by 4 MiB, and then no more.")
@click.option("--regression", type=float, help="Factor on the sizes of one area of the program.  [default: 1]")
@click.option(
    "--regression-in",
    type=click.Choice(["embedding", "attention", "mlp", "norm", "gelu", "loss", "head", "cache"]),
    help="That area.  [default: mlp]",
)
@click.option(
    "--context", type=click.Choice(["all", "alloc", "state", "none"]), help="Whose stacks are recorded.  [default: all]"
)
@click.option("--stacks", type=click.Choice(["python", "all"]), help="all: with C++ frames.  [default: python]")
@click.option("--depth", type=int, help="More frames below the program.")
@click.option(
    "--own-stacks/--shared-stacks",
    default=None,
    help="A stack list for each event, as torch writes it, or one for all equal ones.",
)
@click.option("--times/--no-times", default=None, help="Whether events have times.")
@click.option("--metadata/--no-metadata", default=None, help="user_metadata tells the step.")
@click.option("--compiled/--no-compiled", default=None, help="The first two steps have a compile_context.")
@click.option(
    "--layout",
    type=click.Choice(["2.1", "2.5", "2.8", "2.12"]),
    help="The PyTorch version whose keys are written.  [default: 2.12]",
)
@click.option("--host/--no-host", default=None, help="Pinned host memory too (host_traces, host_segments).")
@click.option("--protocol", type=click.IntRange(2, 5), default=4, help="Pickle protocol.  [default: 4]")
@force_option
@max_memory_option
def sample(
    output: str, preset: str | None, job: str | None, ranks: int | None, protocol: int, force: bool, **options: Any
) -> None:
    """Write a generated memory snapshot, like one recorded by PyTorch, without a GPU.

    The caching allocator is replayed to the byte under a made-up program; equal options give equal files.

    \b
      snapreport sample -o sample.pickle --preset oom
      snapreport sample -o big.pickle --events 1000000 --seed 3 --stacks all
      snapreport sample --job oom -o job/ && snapreport job job/ -o job.html
    """  # noqa: D301  # click's mark for lines that it must not wrap is the character \b
    given = {name: value for name, value in options.items() if value is not None}
    if job is not None:
        if preset is not None:
            raise click.UsageError("--job and --preset are two starts; give one")
        _write_job(output, job, {**given, **({} if ranks is None else {"ranks": ranks})})
        return
    if ranks is not None:
        raise click.UsageError("--ranks goes with --job")
    from snapreport.samples.build import make_snapshot, write_snapshot
    from snapreport.samples.options import make_options

    check_output(output, [], "the sample", force=force)
    try:
        chosen = make_options(preset, **given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    snapshot = make_snapshot(chosen)
    try:
        size = write_snapshot(snapshot, sys.stdout.buffer if output == "-" else output, protocol=protocol)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise cannot_write(output, "the sample", error) from None
    events = sum(len(trace) for trace in snapshot["device_traces"])
    echo(lines([f"{output}: {events:,} events, {size:,} bytes"]), err=True)


def _write_job(folder: str, name: str, given: dict[str, Any]) -> None:
    """The snapshots of a job, rank by rank, so that memory does not grow with them."""
    import dataclasses

    from snapreport.samples.job import JobOptions, job_presets, write_rank

    presets = job_presets()
    if name not in presets:
        raise click.UsageError(f"no job {name!r}; there are {', '.join(presets)}")
    known = {field.name for field in dataclasses.fields(JobOptions)}
    unknown = [option for option in given if option not in known or option == "oom"]
    if unknown:
        raise click.UsageError(f"--{unknown[0].replace('_', '-')} is not for jobs")
    chosen = presets[name]
    ranks = given.get("ranks", chosen.ranks)
    # The rank with the cause must be an existing rank.
    given |= {key: rank % ranks for key in ("straggler", "oom") if ranks > 0 and (rank := getattr(chosen, key))}
    try:
        chosen = dataclasses.replace(chosen, **given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with progress.shown(), progress.stage("writing", chosen.ranks, "ranks") as bar:
            size = 0
            for rank in range(chosen.ranks):
                size += write_rank(chosen, rank, folder).stat().st_size
                bar.advance(1)
    except OSError as error:
        raise cannot_write(folder, "the sample", error) from None
    echo(lines([f"{folder}: {chosen.ranks:,} ranks, {size:,} bytes; next: snapreport job {folder}"]), err=True)
