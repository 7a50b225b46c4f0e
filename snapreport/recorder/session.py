"""A recording: starts PyTorch's recorder, counts steps, and writes snapshots when they are due.

Nothing here may break the recorded program: an error only costs the snapshot, and one line on stderr.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import sys
import time
import weakref
from contextlib import ContextDecorator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from snapreport.recorder import metadata, step_hooks
from snapreport.recorder.allocator import CudaRecorder, memory_kind
from snapreport.recorder.device_watch import DeviceWatch
from snapreport.recorder.hard_exit import on_hard_exit
from snapreport.recorder.headline import SECONDS, report_headline
from snapreport.recorder.module_marks import ModuleMarks
from snapreport.recorder.module_names import ModuleNames
from snapreport.recorder.options import Options, signal_number
from snapreport.recorder.profiler import ProfilerRecorder, unrecorded_accelerator
from snapreport.recorder.python_thread import run_in_python_thread
from snapreport.recorder.signals import ENDING, SignalDumps
from snapreport.recorder.snapshot_files import SIGNAL_SECONDS, SnapshotFiles
from snapreport.recorder.step_profile import StepProfile
from snapreport.recorder.tensor_marks import TensorMarks
from snapreport.terminal import visible

# Number of step times to store; a longer run stores the latest.
MOST_STEPS = 100_000

_active: Recorder | None = None


def say(text: str) -> None:
    """One line for the log of the recorded process."""
    # RuntimeError: a signal's handler interrupts another print.
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        print(f"snapreport: {visible(text)}", file=sys.stderr, flush=True)  # noqa: T201


def active() -> Recorder | None:
    """The recording of this process."""
    return _active


class Recorder(ContextDecorator):
    """Records this process from :meth:`start` to :meth:`stop`, or while used as a context manager or decorator.

    If the process is already being recorded (``snapreport record`` around a program that records itself), the methods
    act on that recording and nothing is recorded twice.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._outer: Recorder | None = None
        self._entered = 0
        self._snapshots = SnapshotFiles(options, say)
        self._names_of_modules = ModuleNames()
        self._undo: list[Any] = []
        self._forget()

    @property
    def files(self) -> list[Path]:
        """The snapshots written, in their order; old ones may have been removed."""
        return self._snapshots.written

    def _forget(self) -> None:
        """Resets the state of a run, which begins anew with each :meth:`start`."""
        self.step_number = 0
        self._memory: CudaRecorder | ProfilerRecorder = CudaRecorder(self.options)
        self._pid = os.getpid()
        self._oom_step: int | None = None
        self._terminated_step: int | None = None
        self._steps: list[tuple[int, int]] = []
        self._writing: list[list[int]] = []  # µs since 1970, beginning and end
        self._steps_by_hand = False
        self._counted: weakref.ref[Any] | None = None
        self._tensors = TensorMarks(self._names_of_modules)
        self._modules = ModuleMarks(self._names_of_modules)
        self._devices = DeviceWatch(self.options, self._raise_alarm)
        self._profile: StepProfile | None = None
        self._facts: dict[str, Any] = {}
        self._started_us = 0
        self._signals = SignalDumps((), self._dump_on_signal, anywhere=False)

    def start(self) -> Recorder:
        """Starts recording as soon as the program initialises CUDA; at once if it already has, or if there is none."""
        global _active
        if _active is self:
            return self
        self._outer = _active
        if self._outer is not None:
            return self
        _active = self
        self._forget()
        self._undo += [step_hooks.on_optimizer_step(self._optimizer_stepped)]
        self._undo += [step_hooks.on_profiler_step(self._profiler_stepped)]
        if self.options.on_signal:  # one that arrives before there is anything to dump must not end the program
            self._catch_signals([signal_number(self.options.on_signal)])
        self._undo.append(lambda: self._signals.remove())
        atexit.register(self.stop)
        self._undo.append(lambda: atexit.unregister(self.stop))
        self._memory = self._chosen()
        self._memory.when_ready(self._begin)
        return self

    def _chosen(self) -> CudaRecorder | ProfilerRecorder:
        kind = memory_kind()
        if kind == "cpu" and (name := unrecorded_accelerator()):
            say(f"{name} memory is not recorded, since PyTorch has no recorder for it; tensors on the CPU are")
        recorder = ProfilerRecorder(self.options) if kind == "cpu" else CudaRecorder(self.options, kind)
        recorder.ends_early = self._end_early
        recorder.notice = say
        return recorder

    def stop(self) -> None:
        """Writes the final snapshot if one is due, and stops recording."""
        global _active
        if self._outer is not None or _active is not self:
            return
        _active = None
        if self._owns_process():
            self._snapshots.wait()
            if self._profile is not None:
                self._profile.end("the program ends")
            if not self._is_end_dumped():
                if self.options.dumps_at_exit:
                    self._dump("exit")
                elif self.options.digest_every:
                    self._digest("exit")
            self._memory.stop()
            self._snapshots.close()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def __call__(self, function: Any) -> Any:
        """Records each call of ``function``. Raises ValueError for one whose body runs after the call returns."""
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise ValueError(f"record() cannot decorate {function.__name__}, whose body runs later: use a with block")
        return super().__call__(function)

    def __enter__(self) -> Recorder:
        self._entered += 1  # a decorated function may call itself
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops; an exception passes through."""
        self._entered -= 1
        if not self._entered:
            self.stop()

    def step(self) -> None:
        """Marks the end of a training step. The first call resets the count, and optimizers no longer mark steps."""
        recorder = self._outer or self
        if not recorder._steps_by_hand:
            recorder._steps_by_hand = True
            recorder.step_number = 0
            recorder._steps.clear()
        recorder._step_ended()

    def watch(self, *models: Any) -> None:
        """Names the parameters of ``models`` in snapshots. Otherwise all objects are searched for modules."""
        recorder = self._outer or self
        recorder._names_of_modules.watch(models)

    def dump(self, reason: str = "call") -> Path | None:
        """Writes a snapshot now. Returns its path; None if nothing is being recorded or writing failed."""
        return (self._outer or self)._dump(reason)

    # The methods below are called by PyTorch, by signals, or by the methods above on the recording itself.

    def _begin(self) -> None:
        """CUDA has just been initialised; nothing is allocated yet."""
        if _active is not self or self._memory.recording:
            return
        try:
            self._pid = os.getpid()  # a forked child may be the one that uses CUDA
            self._snapshots.open(self._memory)
            self._started_us = metadata.now_us()
            self._facts = metadata.process_facts(self.options)
            self._memory.begin(self._out_of_memory)
            self._memory.step(0)
            self._names_of_modules.kind = self._memory.kind
            if self.options.modules:
                self._modules.start()
                self._undo.append(self._modules.stop)
            if isinstance(self._memory, CudaRecorder):
                self._devices.start(self._memory)
                self._undo.append(self._devices.stop)
            self._watch_end()
            self._start_profile()
        except (RuntimeError, OSError, TypeError, ValueError, AttributeError) as error:
            self._memory.stop()
            say(f"not recording: {error}")

    def _start_profile(self) -> None:
        if self.options.profile is None:
            return
        if self._memory.kind == "cpu":
            say("no profile: without CUDA, the recording itself is one")
            return
        self._profile = StepProfile(self.options, self._memory.kind, say)
        self._profile.step(0, self._profile_path)

    def _profile_path(self) -> Path:
        self._learn_rank()
        return self._snapshots.profile_path()

    def _watch_end(self) -> None:
        """Only of processes that record: launchers are left alone."""
        chosen = self.options.on_signal
        self._catch_signals(sorted({*ENDING, *([signal_number(chosen)] if chosen else [])}))
        self._undo.append(on_hard_exit(self.stop))

    def _catch_signals(self, numbers: list[int]) -> None:
        self._signals.remove()
        # torch.profiler is stopped in the thread that started it.
        self._signals = SignalDumps(numbers, self._dump_on_signal, anywhere=self._memory.kind != "cpu")
        self._signals.install()

    def _owns_process(self) -> bool:
        """False in a forked child: the recording belongs to its parent."""
        return self._pid == os.getpid()

    def _end_early(self, reason: str) -> None:
        """Recording has to stop for ``reason``: writes the events so far."""
        if self._memory.recording and not self._snapshots.is_writing:  # a dump in progress ends the profile anyway
            say(reason)
            self._dump("call")
            self._memory.stop()

    def _is_end_dumped(self) -> bool:
        """Whether a snapshot shows the end already: one on a signal that ends the program, or of an out-of-memory error
        that it dies of, after which its tensors are freed.
        """
        if self._terminated_step == self.step_number:
            return True
        last = getattr(sys, "last_value", None)  # set before exit handlers run
        return self._oom_step == self.step_number and isinstance(last, sys.modules["torch"].cuda.OutOfMemoryError)

    def _optimizer_stepped(self, optimizer: Any) -> None:
        self._tensors.optimizers.add(optimizer)
        if self._steps_by_hand or not self._memory.recording:
            return
        # Where several optimizers alternate, the first one counts.
        counted = self._counted() if self._counted else None
        if counted is None:
            counted = optimizer
            self._counted = weakref.ref(optimizer)
        if counted is optimizer:
            self._step_ended()
        elif self.options.modules and self._owns_process():
            self._tensors.mark_gradients()  # they may be freed before the next step of the counted one

    def _profiler_stepped(self) -> None:
        """Ends a step if the program has no optimizer."""
        if self._counted is None and not self._steps_by_hand:
            self._step_ended()

    def _step_ended(self) -> None:
        if not self._memory.recording or not self._owns_process():
            return
        self.step_number += 1
        number = self.step_number
        end_ns = time.time_ns()
        self._steps.append((number, end_ns // 1000))
        if len(self._steps) > MOST_STEPS:
            del self._steps[: MOST_STEPS // 10]
        if self._profile is not None:
            self._profile.step(number, self._profile_path)
            self._wrote_since(end_ns)
        self._devices.step_ended()
        if self.options.modules:
            self._modules.step_ended(number, end_ns, self._memory.steps)
            self._tensors.mark_gradients()
        steps = self._memory.steps
        is_first = bool(steps and number == steps[0])
        is_marked = is_first or number & (number - 1) == 0  # 1, 2, 4, 8 …: names rarely change later
        if is_marked:
            self._tensors.mark_all()
        if steps and number == steps[1]:
            self._dump("steps")
            if self._memory.kind == "cpu" and not self.options.steps:
                say(f"recorded the first {number} steps; --steps A:B chooses others")
        elif self.options.every and number % self.options.every == 0:
            self._dump("every")
        if self.options.digest_every and number % self.options.digest_every == 0 and self._snapshots.is_digest_due:
            self._digest("running")
        self._memory.step(number)
        if is_marked and self.options.modules and (not steps or steps[0] <= number < steps[1]):
            self._tensors.annotate(self.options.max_entries, is_new=is_first)

    def _raise_alarm(self, text: str) -> None:
        path = self._dump("alarm")
        say(f"{text} Step {self.step_number}." + (f" Snapshot: {path}" if path else ""))

    def _digest(self, reason: str) -> None:
        """Has the digest of a snapshot written that does not stay."""
        if isinstance(self._memory, CudaRecorder):  # each dump ends a profile
            self._dump(reason, is_for_digest=True)

    def _dump_on_signal(self, number: int) -> None:
        """Called in the main thread or another. A dump that another thread is writing serves as well."""
        if self._snapshots.wait():
            return
        is_chosen = self.options.on_signal is not None and number == signal_number(self.options.on_signal)
        path = self._dump("signal" if is_chosen else "terminated", seconds=SIGNAL_SECONDS)
        if path is not None and number in ENDING:
            self._terminated_step = self.step_number

    def _out_of_memory(self, device: int, requested: int, total: int, free: int) -> None:
        """PyTorch is about to raise ``OutOfMemoryError``. Dumps once per step: programs that retry fail many times."""
        if _active is not self or not self.options.on_oom or self._oom_step == self.step_number:
            return
        self._oom_step = self.step_number
        event = {"device": device, "tried_bytes": requested, "total_bytes": total, "free_bytes": free}
        if not run_in_python_thread(lambda: self._dump_out_of_memory(event), self.options.oom_seconds):
            say(f"the oom snapshot takes longer than {self.options.oom_seconds:.0f} s and is not waited for")

    def _dump_out_of_memory(self, event: dict[str, int]) -> None:
        began, device = time.monotonic(), event["device"]
        sys.modules["torch"].cuda.set_device(device)  # a new thread starts on device 0, which others may use
        path = self._dump("oom", event, self.options.oom_seconds)
        if path is not None:
            assert isinstance(self._memory, CudaRecorder)  # the profiler has no observer
            left = self.options.oom_seconds - (time.monotonic() - began) - 1
            line = report_headline(self.options.python, path, min(SECONDS, left))
            if not line:
                line = self._memory.memory_line(device, event["tried_bytes"], event["free_bytes"])
            say(f"{line} Step {self.step_number}. Snapshot: {path}")

    def _dump(
        self,
        reason: str,
        oom: dict[str, int] | None = None,
        seconds: float | None = None,
        *,
        is_for_digest: bool = False,
    ) -> Path | None:
        with self._signals.postponed():
            if not self._memory.recording or not self._owns_process():
                return None
            facts, began = partial(self._snapshot_facts, reason, oom), time.time_ns()
            try:
                return self._snapshots.write(
                    self._memory, self.step_number, reason, facts, seconds, is_for_digest=is_for_digest
                )
            finally:
                self._wrote_since(began)

    def _wrote_since(self, began_ns: int) -> None:
        """Notes that the program has waited for files of ours since then, if it was long."""
        if len(self._writing) < MOST_STEPS and time.time_ns() - began_ns > 1_000_000:
            self._writing.append([began_ns // 1000, metadata.now_us()])

    def _learn_rank(self) -> None:
        """Gets the rank of a program without ``RANK``, known once torch.distributed is initialised."""
        self._facts["distributed"] = metadata.distributed_facts()
        with contextlib.suppress(KeyError, ValueError):
            self._snapshots.set_rank(int(self._facts["distributed"]["RANK"]))

    def _snapshot_facts(self, reason: str, oom: dict[str, int] | None) -> dict[str, Any]:
        """What a snapshot says about its program, beside the allocator's events."""
        self._learn_rank()
        self._tensors.mark_all()
        return {
            "schema": metadata.SCHEMA,
            "reason": reason,
            "oom": oom,
            "step": self.step_number,
            "started_us": self._started_us,
            "dumped_us": metadata.now_us(),
            **self._facts,
            "devices": metadata.device_facts(self._memory.kind),
            "memory_at_dump": metadata.memory_info(self._memory.kind),
            "steps": [list(step) for step in self._steps],
            "writing": self._writing,
            "modules": self._modules.facts(),
            "profile": self._profile and self._profile.name,
            "device_memory": self._devices.facts(),
            "marks": self._tensors.facts(),
        }
