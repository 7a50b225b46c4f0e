"""Computes digests of many snapshots: in this process, in several, on a Dask cluster, or on the caller's executor."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Struct

from snapreport import progress, supervision
from snapreport.available_memory import available_memory
from snapreport.errors import SnapshotError, one_line
from snapreport.jobs.digest_format import MAGIC, MOST_BYTES
from snapreport.jobs.rank_names import is_digest
from snapreport.jobs.sources import size_of
from snapreport.process_memory import release_freed
from snapreport.reading.open import MAX_RATIO
from snapreport.reading.paths import open_binary, shown_path
from snapreport.terminal import echo

if TYPE_CHECKING:
    from snapreport.jobs.rows import Packed

NEED_FIXED, NEED_FACTOR = 180 << 20, 6
"""Upper bound of the bytes of memory for reading a snapshot: the interpreter with its libraries, plus this multiple of
the file's size if its entries cannot be parsed (a 107 MB pickle takes 0.26 GB with its digest if they can). Compressed
files count thirty times."""
_ASSUMED_MEMORY = 4 << 30  # where the system does not say
_COMPRESSED_FACTOR = min(30, MAX_RATIO)
CONNECT_SECONDS = 30
"""Timeout for connecting to a Dask scheduler."""
WORKERS_SECONDS = 10
"""After so long without a worker, a line says so."""
DASK_SECONDS = 300.0
"""Default of how long to wait for the first worker of a Dask cluster."""
_KILLED = "the process that read it was killed, for lack of memory or because it did not end"


class DigestResult(Struct, frozen=True, dict=True):
    """``data``: the digest's bytes, or None with a one-line ``error``."""

    data: bytes | None
    error: str = ""

    @cached_property
    def packed(self) -> Packed | None:
        """The digest's columns, decoded once; None without a digest. Raises :class:`SnapshotError` if damaged."""
        from snapreport.jobs.rows import packed

        return packed(self.data) if self.data else None


def make_digest(path: str, options: dict[str, Any] | None = None) -> DigestResult:
    """The digest of one file, which may itself be a digest. Never raises: an error is recorded for its rank."""
    try:
        if path != "-":
            with open_binary(path) as file:
                data = file.read(MOST_BYTES + 1)
            if data.startswith(MAGIC):
                if (options or {}).get("redaction"):
                    reason = "a digest is redacted when it is made, by snapreport digest --redact"
                    raise SnapshotError(f"{shown_path(path)}: {reason}")
                made = DigestResult(data)
                try:
                    _ = made.packed
                except SnapshotError as error:
                    raise SnapshotError(f"{shown_path(path)}: {error}") from None
                return made
        data = _digest_of_snapshot(path, options or {})
        # A snapshot is part of cycles, and the command line does not look for these by itself.
        release_freed()
        return DigestResult(data)
    except SnapshotError as error:
        return DigestResult(None, str(error))
    except OSError as error:
        return DigestResult(None, one_line(f"{path}: cannot be read: {error.strerror or error}"))
    except MemoryError:
        return DigestResult(None, one_line(f"{path}: not enough memory"))


def _digest_of_snapshot(path: str, options: dict[str, Any]) -> bytes:
    from snapreport.jobs.digest import digest_bytes
    from snapreport.snapshot import load

    snapshot = load(path, options.get("rules"), inference=options.get("inference", True))
    source, job_link = path, options.get("job_link", "")
    if redaction := options.get("redaction"):
        if redaction.hides(unquote(job_link), snapshot.recording):
            job_link = ""
        (snapshot.recording,) = redaction.of([snapshot.recording])
        source = snapshot.recording.path
    data = digest_bytes(snapshot, source=source)
    if options.get("each"):
        from snapreport.jobs.rank_reports import write_rank_report

        write_rank_report(snapshot, Path(options["each"]) / options["names"][path], job_link)
    return data


def make_all(
    paths: Sequence[str],
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    dask: str | None = None,
    dask_timeout: float = DASK_SECONDS,
    options: dict[str, Any] | None = None,
    label: Callable[[str], str] = str,
) -> list[DigestResult]:
    """The digests of ``paths``, in their order; the bytes do not depend on where they are made.

    ``jobs``: number of local processes, by default limited by cores and memory; 1 is this process, so that a file that
    hangs or kills its reader affects all ranks. ``executor``: runs them instead; ``dask``: a scheduler's address or
    file, whose first worker is waited for ``dask_timeout`` seconds. ``options``: of :func:`make_digest`. ``label``: the
    progress bar's text for a path.
    """
    made: dict[int, DigestResult] = {}
    with progress.stage("ranks", len(paths), "ranks") as bar:

        def done(index: int, result: DigestResult) -> None:
            made[index] = result
            bar.rename(label(paths[index]))
            bar.advance(1)

        if dask is not None:
            _on_dask(dask, dask_timeout, paths, options, done)
        elif executor is not None:
            _on_executor(executor, list(range(len(paths))), paths, options, done)
        else:
            workers = min(len(paths), jobs or processes_for(paths))
            # A single worker is a separate process, too, unless ``jobs`` is 1: if it dies, only its rank fails. Digests
            # are read here: one takes 2 ms, and passing it on takes as long.
            if jobs == 1 or len(paths) == 1 or all(map(is_digest, paths)):
                for index, path in enumerate(paths):
                    done(index, make_digest(path, options))
            else:
                _on_processes(workers, paths, options, done)
    return [made[index] for index in range(len(paths))]


def processes_for(paths: Sequence[str]) -> int:
    """The number of cores, or fewer if that many of the largest file do not fit into the available memory."""
    largest = max((need_of(path) for path in paths), default=NEED_FIXED)
    return max(1, min(os.cpu_count() or 1, (available_memory(with_swap=False) or _ASSUMED_MEMORY) // largest))


def need_of(path: str) -> int:
    """Upper bound of the bytes of memory to digest a file, as measured on files of its size."""
    factor = NEED_FACTOR * (_COMPRESSED_FACTOR if path.lower().endswith((".gz", ".zst", ".xz", ".bz2")) else 1)
    return NEED_FIXED + factor * size_of(path)


def _on_processes(
    workers: int, paths: Sequence[str], options: dict[str, Any] | None, done: Callable[[int, DigestResult], None]
) -> None:
    """In fresh processes, since threads of polars do not survive a fork. If one of them is killed, its file and those
    of its neighbours are retried one by one; only a file whose process is killed twice has failed.
    """
    rest = list(range(len(paths)))
    with _few_threads():
        with fresh_processes(workers) as pool:
            finished: set[int] = set()

            def note(index: int, result: DigestResult) -> None:
                finished.add(index)
                done(index, result)

            with contextlib.suppress(BrokenProcessPool):
                _on_executor(pool, rest, paths, options, note)
        rest = [index for index in rest if index not in finished]
        while rest:
            with fresh_processes(1) as pool:
                for index in list(rest):
                    rest.remove(index)
                    try:
                        result = pool.submit(make_digest, paths[index], options).result()
                    except BrokenProcessPool:
                        done(index, DigestResult(None, f"{paths[index]}: {_KILLED}"))
                        break
                    done(index, result)


def fresh_processes(workers: int) -> ProcessPoolExecutor:
    """Local processes, each with as many threads as there are cores unless the environment says otherwise."""
    return ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=supervision.end_when_hanging,
        initargs=(supervision.HANG_SECONDS_OF_WORKERS,),
    )


@contextlib.contextmanager
def _few_threads() -> Iterator[None]:
    """One polars thread and one BLAS thread per process, since there is one process per core."""
    wanted = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _on_executor(
    executor: Executor,
    indices: Sequence[int],
    paths: Sequence[str],
    options: dict[str, Any] | None,
    done: Callable[[int, DigestResult], None],
) -> None:
    """With a bounded number of pending calls: a job of 4,096 ranks need not be in the executor's queue at once."""
    waiting = iter(indices)
    under_way: dict[Future[DigestResult], int] = {}
    for index in itertools.islice(waiting, 256):
        under_way[executor.submit(make_digest, paths[index], options)] = index
    while under_way:
        ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
        broken: BrokenProcessPool | None = None
        for future in ready:
            index = under_way.pop(future)
            try:
                result = future.result()
            except BrokenProcessPool as error:
                broken = error
                continue
            except Exception as error:  # noqa: BLE001  # an executor's failure costs one rank, not the job
                result = DigestResult(None, one_line(f"{paths[index]}: {error or type(error).__name__}"))
            done(index, result)
        if broken:
            raise broken
        for index in itertools.islice(waiting, 256 - len(under_way)):
            under_way[executor.submit(make_digest, paths[index], options)] = index


def _on_dask(
    address: str,
    seconds: float,
    paths: Sequence[str],
    options: dict[str, Any] | None,
    done: Callable[[int, DigestResult], None],
) -> None:
    """On an existing cluster. Dask itself reruns the tasks of a lost worker; if it gives up, the rank has failed."""
    try:
        import distributed
    except ImportError:
        raise SnapshotError("--dask needs Dask; install snapreport[dask]") from None
    connect: Any = distributed.Client
    completed: Any = distributed.as_completed
    where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = connect(**where, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # noqa: BLE001  # any connection failure
        raise SnapshotError(f"{address}: cannot reach the Dask scheduler: {one_line(str(error))[:200]}") from None
    with client:
        _await_workers(client, address, seconds)
        futures = client.map(make_digest, list(paths), options=options, pure=False, retries=2)
        number = {future.key: index for index, future in enumerate(futures)}
        for future in completed(futures, loop=client.loop):
            index = number[future.key]
            if future.status == "finished":
                done(index, future.result())
            else:
                done(index, DigestResult(None, one_line(f"{paths[index]}: {future.exception()}")))
            future.release()


def _await_workers(client: Any, address: str, seconds: float) -> None:
    """Waits for a worker. Says so after ``WORKERS_SECONDS``; raises :class:`SnapshotError` after ``seconds``."""
    for wait_for, is_last in ((min(WORKERS_SECONDS, seconds), seconds <= WORKERS_SECONDS), (seconds, True)):
        try:
            client.wait_for_workers(1, timeout=wait_for)
        except TimeoutError:
            if is_last:
                raise SnapshotError(
                    f"{address}: no worker joined the Dask cluster within {seconds:g} s; --dask-timeout waits longer"
                ) from None
            seconds -= wait_for
            echo(f"snapreport: {address}: waiting for a worker of the Dask cluster", err=True)
        else:
            return
