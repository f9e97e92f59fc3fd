"""vLLM's own tiers below the host: its ``TieringOffloadingManager`` with its tier of files, in a real folder.

The manager, the tier, its files and the host's memory are those of the release. The tier's threads are not started: the
case says when what they take from their queues is done, and the release's own loop does it then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from errno import ENOSPC
from importlib import import_module
from os import strerror, truncate
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kvgate.levels.tiers.adapter.offloading import Offloading, configuration
from kvgate.levels.tiers.adapter.transfers import BYTES_PER_BLOCK, sizes_of
from kvgate.levels.tiers.files import FileJob, Folder, Key
from kvgate.levels.tiers.memory import Content, TierMemory
from kvgate.levels.tiers.operations import TierStage
from kvreference.settings import Settings

NUMBERS_PER_BLOCK = BYTES_PER_BLOCK // 8


def tiering_configuration(
    settings: Settings, stage: TierStage, groups: Sequence[Any], folder: Folder
) -> dict[str, Any]:
    """How the connector is configured with a tier of files."""
    files = {"type": "fs", "root_dir": folder.path, "n_read_threads": 0, "n_write_threads": 0}
    below = {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [files]}
    return configuration(settings, stage, groups) | below


class HostBytes(MutableMapping[tuple[int, int, int], Content]):
    """Ghost memory of the host's tier in the bytes that the tier of files reads and writes.

    Of each part of a chunk: one more than its group, how many slots it has, and one more than the prefix in each.
    """

    def __init__(self, view: memoryview, parts: int) -> None:
        numpy = import_module("numpy")
        self._numbers: Any = numpy.frombuffer(view.cast("B"), dtype=numpy.int64).reshape(-1, parts, NUMBERS_PER_BLOCK)

    def __getitem__(self, at: tuple[int, int, int]) -> Content:
        group, slots, *numbers = self._numbers[at[1], at[2]].tolist()
        if not group:
            raise KeyError(at)
        return group - 1, tuple(number - 1 if number else None for number in numbers[:slots])

    def __setitem__(self, at: tuple[int, int, int], content: Content) -> None:
        group, slots = content
        numbers = [group + 1, len(slots), *(0 if slot is None else slot + 1 for slot in slots)]
        self._numbers[at[1], at[2], : len(numbers)] = numbers

    def __delitem__(self, at: tuple[int, int, int]) -> None:
        self._numbers[at[1], at[2]] = 0

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        chunks, parts, _ = self._numbers.shape
        return iter([(0, chunk, part) for chunk in range(chunks) for part in range(parts)])

    def __len__(self) -> int:
        return len(list(iter(self)))


class Tiering(Offloading):
    """An ``OffloadingConnector`` with a tier of files below its tier on the host."""

    def __init__(self, connector: Any, worker: Any, memory: TierMemory, stage: TierStage, tier: int) -> None:
        super().__init__(connector, worker, memory, stage, tier)
        self.host = self.manager.primary_tier
        assert memory.folder is not None, "there is a tier of files"
        self._memory, self._folder = memory, memory.folder
        (self.files,) = self.manager.secondary_tiers
        self._pool, self._look_ups = self.files._pool, getattr(self.files, "_lookup_manager", None)
        region = self.host._mmap_region
        # As the release does once every worker has it: it goes with the process, and here with the engine.
        Path(region.mmap_path).unlink(missing_ok=True)
        region._creator = False
        memory.host = HostBytes(self.host.get_kv_memoryview(), stage.blocks_per_chunk)
        if self._look_ups is not None:
            self._look_ups._lookup_queue.put(None)
            self._look_ups._thread.join()
        self.evicted_for: dict[int, set[Key]] = {}
        """What the host lost when room was made for what a job reads from files."""
        self._listen()
        self._empty = self._sizes()

    def _listen(self) -> None:
        """Note which files are read and written, and what the tier says of it."""
        write, read, finished = self.files.submit_store, self.files.submit_load, self.files.get_finished_jobs
        make_room, lost = self.host.prepare_write, set[Key]()

        def prepare_write(*arguments: Any) -> Any:
            output = make_room(*arguments)
            lost.update(map(self._key, output.evicted_keys if output is not None else ()))
            return output

        def submit_store(job: Any) -> None:
            self._memory.begin_file(self._job(job, reads=False))
            write(job)

        def submit_load(job: Any) -> None:
            self._memory.begin_file(self._job(job, reads=True))
            self.evicted_for[job.job_id] = set(lost)
            read(job)

        def get_finished_jobs() -> list[Any]:
            results = list(finished())
            for each in results:
                done = getattr(each, "successful_keys", None) or ()
                keys = None if each.success else [self._key(key) for key in done]
                self._memory.end_file(each.job_id, keys)
                self.evicted_for.pop(each.job_id, None)
            lost.clear()
            return results

        def wait_idle() -> None:
            self.end_files(reads=False, jobs=len(self._memory.file_jobs))
            self.end_files(reads=True, jobs=len(self._memory.file_jobs))
            waits()

        self.host.prepare_write = prepare_write
        self.files.submit_store, self.files.submit_load = submit_store, submit_load
        self.files.get_finished_jobs = get_finished_jobs
        if hasattr(self._pool, "wait_idle"):
            waits = self._pool.wait_idle
            self._pool.wait_idle = wait_idle

    def _key(self, key: Any) -> Key:
        base: Any = import_module("vllm.v1.kv_offload.base")
        return bytes(base.get_offload_block_hash(key)), base.get_offload_group_idx(key)

    def _job(self, job: Any, reads: bool) -> FileJob:
        chunks = job.chunk_ids if hasattr(job, "chunk_ids") else job.block_ids
        request = getattr(getattr(job, "req_context", None), "req_id", "a request")
        self._copies.name(job.keys)
        keys = {int(chunk): self._key(key) for chunk, key in zip(chunks, job.keys, strict=True)}
        return FileJob(job.job_id, reads, request, keys)

    def answer_look_ups(self) -> None:
        """What the tier was asked about files is answered."""
        if self._look_ups is not None:
            self._look_ups._lookup_queue.put(None)
            self._look_ups._worker()

    def end_files(self, reads: bool, jobs: int, fail: bool = False) -> None:
        """The jobs of one direction that began first end, or fail."""
        for number in [each.number for each in self._memory.file_jobs.values() if each.reads == reads][:jobs]:
            waiting = self._pool._load_q if reads else self._pool._store_q
            if any(state._job_id == number for _, state in waiting):
                self._end_file(waiting, self._memory.file_jobs[number], fail)

    def _end_file(self, waiting: deque[tuple[Any, Any]], job: FileJob, fail: bool) -> None:
        if fail and job.reads:
            self._cut_short(list(job.keys.values())[-1])
        with _full_disk() if fail and not job.reads else nullcontext():
            while waiting and waiting[0][1]._job_id == job.number:
                self._run_first(waiting, job.reads)
        self._memory.wrote(job, {key for key in job.keys.values() if Path(self._path(key)).exists()})

    def _run_first(self, waiting: deque[tuple[Any, Any]], reads: bool) -> None:
        """Let the loop of the release's threads do the first that waits, and no more."""
        task, state = waiting.popleft()

        def once() -> None:
            self._pool._stop = True
            task()

        waiting.appendleft((once, state))
        self._pool._worker(reads)
        self._pool._stop = False

    def keys_of(self, requests: Collection[str]) -> set[Key]:
        """The keys of the chunks of these requests."""
        states = [state for name in requests for state in self.half._req_status[name].group_states]
        return {self._key(key) for state in states for key in state.offload_keys}

    def keys_to_store(self) -> set[Key]:
        """The keys of the stores that the half at the scheduler knows."""
        return {self._key(key) for job in self.half._jobs.values() if job.is_store for key in job.keys}

    def keys_left_unready(self) -> set[Key]:
        """The chunks of the host that cannot be read, and that no job under way brings."""
        coming = {key for job in self._memory.jobs.values() for key in job.keys.values()}
        coming |= {key for job in self._memory.file_jobs.values() for key in job.keys.values()}
        chunks = {self._key(key): self.host._policy.get(key) for key in self._copies.keys}
        return {key for key, chunk in chunks.items() if chunk is not None and not chunk.is_ready} - coming

    def _path(self, key: Key) -> str:
        base: Any = import_module("vllm.v1.kv_offload.base")
        return str(self.files.file_mapper.get_file_name(base.make_offload_key(*key)))

    def _cut_short(self, key: Key) -> None:
        path = self._path(key)
        if Path(path).exists():
            truncate(path, 0)

    def remaining(self) -> Mapping[str, int]:
        """See ``Half``: besides, what the manager and the tier below keep that they did not have at first."""
        # What has ended or was answered is known from the next look-up or step on, and there may be none.
        self.manager._process_finished_jobs()
        if self._look_ups is not None:
            self._look_ups.drain_results()
        sizes = self._sizes()
        more = {name: size - self._empty.get(name, 0) for name, size in sizes.items()}
        return {**super().remaining(), **{name: each for name, each in more.items() if each > 0}}

    def _sizes(self) -> dict[str, int]:
        parts = (self.manager, self.files, self._look_ups, self._pool)
        return {name: size for part in parts if part is not None for name, size in sizes_of(part).items()}


@contextmanager
def _full_disk() -> Iterator[None]:
    """The disk has no room: what is written is not."""

    def write(*_arguments: object) -> int:
        raise OSError(ENOSPC, strerror(ENOSPC))

    with patch("os.write", write):
        yield
