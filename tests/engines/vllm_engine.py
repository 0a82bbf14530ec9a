"""A stand-in for vLLM: the scheduler (block pool with prefix cache, chunked prefill, asynchronous loads, preemption) in
this process, workers in processes of their own; what passes between them is pickled, as in vLLM. Every load and every
finished request is checked token by token."""
from __future__ import annotations

import enum
import time
import traceback
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import numpy
from conversations import Request, fingerprints, kv_of, next_token

BLOCK = 4
LAYERS = 2
BUDGET = 48  # tokens of a step
BATCH = 4


class Status(enum.Enum):
    WAITING = 1
    WAITING_FOR_REMOTE_KVS = 2
    RUNNING = 3
    PREEMPTED = 4
    FINISHED = 5


class ConstantList(Sequence[int]):
    """How vLLM shows a request's tokens to others: a view of its list."""

    def __init__(self, tokens: List[int]) -> None:
        self._x = tokens

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, at: Any) -> Any:
        return self._x[at]

    def __iter__(self) -> Iterator[int]:
        return iter(self._x)


class VllmRequest:
    """The fields that the connector reads, and the engine's own."""

    def __init__(self, request: Request) -> None:
        self.request_id = request.id
        self.prompt = list(request.tokens)
        self.tokens = list(request.tokens)
        self.all_token_ids = ConstantList(self.tokens)
        self.output = request.output
        self.status = Status.WAITING
        self.num_computed_tokens = 0
        self.cache_salt = request.salt or None
        self.lora_request = None
        self.num_prompt_tokens = len(request.tokens)
        self.blocks: List[int] = []
        self.external = 0
        self.new = True
        self.failed = 0

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)


def config(url: str, tp: int, rank: int, mla: bool, extra: Dict[str, Any], blocks: int) -> Tuple[Any, Any]:
    spec = SimpleNamespace(block_size=BLOCK, num_kv_heads=2, head_size=3, page_size_bytes=BLOCK * 8 * (6 if mla else 12))
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=[f"layer.{n}" for n in range(LAYERS)])
    return (
        SimpleNamespace(
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config={"kvrail.url": url, "kvrail.heartbeat_interval": 0.2, **extra}),
            model_config=SimpleNamespace(model="lab/mla" if mla else "lab/model", dtype="torch.int64", use_mla=mla),
            parallel_config=SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=1, rank=rank),
            cache_config=SimpleNamespace(block_size=BLOCK, cache_dtype="auto"),
        ),
        SimpleNamespace(kv_cache_groups=[group], num_blocks=blocks),
    )


# ---- workers -----------------------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, url: str, rank: int, tp: int, mla: bool, stacked: bool, extra: Dict[str, Any], blocks: int) -> None:
        from kvrail.vllm import KvrailConnector
        from kvrail.vllm.base import KVConnectorRole

        self.rank = 0 if mla else rank
        self.mla, self.stacked = mla, stacked
        shape: Tuple[int, ...] = (blocks, BLOCK, 6) if mla else (blocks, 2, BLOCK, 2, 3) if stacked else (2, blocks, BLOCK, 2, 3)
        self.caches = {f"layer.{n}": numpy.zeros(shape, dtype=numpy.int64) for n in range(LAYERS)}
        self.connector = KvrailConnector(*self.two(url, tp, rank, mla, extra, blocks, KVConnectorRole.WORKER))
        self.connector.register_kv_caches(self.caches)
        self.sync = not extra.get("kvrail.load_async", True)
        self.checked = 0

    @staticmethod
    def two(url: str, tp: int, rank: int, mla: bool, extra: Dict[str, Any], blocks: int, role: Any) -> Tuple[Any, Any, Any]:
        vllm_config, kv_cache_config = config(url, tp, rank, mla, extra, blocks)
        return vllm_config, role, kv_cache_config

    def planes(self, tensor: Any) -> List[Any]:
        return [tensor] if self.mla else [tensor[:, 0], tensor[:, 1]] if self.stacked else [tensor[0], tensor[1]]

    def cells(self, blocks: List[int], begin: int, end: int) -> Tuple[List[int], List[int]]:
        return [blocks[at // BLOCK] for at in range(begin, end)], [at % BLOCK for at in range(begin, end)]

    def compute(self, tokens: List[int], blocks: List[int], begin: int, end: int) -> None:
        prints = fingerprints(tokens)[begin:end]
        where = self.cells(blocks, begin, end)
        for layer, tensor in enumerate(self.caches.values()):
            for plane, view in enumerate(self.planes(tensor)):
                values = kv_of(prints, layer, plane, self.rank)
                view[where] = values.reshape((-1,) + (1,) * (view.ndim - 2))

    def check(self, what: str, tokens: List[int], blocks: List[int], begin: int, end: int, bad: Set[int]) -> None:
        prints = fingerprints(tokens)[begin:end]
        where = self.cells(blocks, begin, end)
        good = numpy.array([block not in bad for block in where[0]], dtype=bool)
        for layer, tensor in enumerate(self.caches.values()):
            for plane, view in enumerate(self.planes(tensor)):
                values = kv_of(prints, layer, plane, self.rank)
                wrong = (view[where] != values.reshape((-1,) + (1,) * (view.ndim - 2))).reshape(end - begin, -1).any(axis=1) & good
                assert not wrong.any(), (
                    f"{what}: rank {self.rank} layer {layer} plane {plane}: wrong bytes at {(numpy.nonzero(wrong)[0] + begin).tolist()} "
                    f"of {begin}..{end}"
                )
        self.checked += end - begin

    def seen(self, layer: int, blocks: List[int], begin: int, end: int) -> List[Any]:
        """What a forward pass would read of a load's tokens in this layer now."""
        where = self.cells(blocks, begin, end)
        return [view[where].copy() for view in self.planes(list(self.caches.values())[layer])]

    def check_seen(self, what: str, layer: int, seen: List[Any], load: Tuple[Any, ...], bad: Set[int]) -> None:
        tokens, blocks, begin, end = load
        good = numpy.array([block not in bad for block in self.cells(blocks, begin, end)[0]], dtype=bool)
        for plane, values in enumerate(seen):
            wanted = kv_of(fingerprints(tokens)[begin:end], layer, plane, self.rank)
            wrong = (values != wanted.reshape((-1,) + (1,) * (values.ndim - 1))).reshape(end - begin, -1).any(axis=1) & good
            assert not wrong.any(), f"{what}: rank {self.rank} layer {layer} was not there when it was used: {numpy.nonzero(wrong)[0]}"

    def step(self, metadata: Any, work: List[Any], finished: Set[str], loads: Dict[str, Any], check: List[Any]) -> Tuple[Any, ...]:
        """One execute_model. check: what the last step has finished, while its blocks are as they were. work: (tokens,
        blocks, begin, end) to compute. loads: what a load brings, to be checked when it is reported."""
        for what, tokens, blocks, end in check:
            self.check(what, tokens, blocks, 0, end, set())
        if hasattr(self.connector, "handle_preemptions"):
            self.connector.handle_preemptions(metadata)
        self.connector.bind_connector_metadata(metadata)
        self.connector.start_load_kv(None)
        seen: List[Tuple[str, int, List[Any]]] = []
        for layer, name in enumerate(self.caches):
            self.connector.wait_for_layer_load(name)
            if self.sync:
                seen += [(id, layer, self.seen(layer, *load[1:])) for id, load in loads.items()]
        for tokens, blocks, begin, end in work:
            self.compute(tokens, blocks, begin, end)
        for name, tensor in self.caches.items():
            self.connector.save_kv_layer(name, tensor, None)
        self.connector.wait_for_save()
        sent, received = self.connector.get_finished(finished)
        errors: Set[int] = self.connector.get_block_ids_with_load_errors()
        self.connector.clear_connector_metadata()
        for id, layer, values in seen:
            self.check_seen(f"load of {id}", layer, values, loads[id], errors)
        if self.sync:
            for id, (tokens, blocks, begin, end) in loads.items():
                self.check(f"load of {id}", tokens, blocks, begin, end, errors)
        if not self.sync:
            for id in received or ():
                tokens, blocks, begin, end = loads[id]
                self.check(f"load of {id}", tokens, blocks, begin, end, errors)
        return sent or set(), received or set(), errors


def serve(pipe: Any, *arguments: Any) -> None:
    try:
        worker = Worker(*arguments)
        pipe.send(("ready", None))
        while True:
            command = pipe.recv()
            if command == "healthy":
                pipe.send(("healthy", worker.connector._link.healthy))
                continue
            if command is None:
                worker.connector.shutdown()
                pipe.send(("stopped", worker.checked))
                return
            pipe.send(("step", worker.step(*command)))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


# ---- the scheduler -------------------------------------------------------------------------------------------------------------


class Blocks:
    """Block pool with a prefix cache: a block of a freed request stays findable until it is taken for something
    else."""

    def __init__(self, count: int) -> None:
        self.free = list(range(count))  # the least recently used first
        self.uses = [0] * count
        self.by_prefix: Dict[Tuple[Any, ...], int] = {}
        self.prefix_of: Dict[int, Tuple[Any, ...]] = {}

    def find(self, tokens: List[int], salt: Optional[str]) -> List[int]:
        found = []
        for end in range(BLOCK, len(tokens), BLOCK):  # the last token is always computed
            block = self.by_prefix.get((salt, *tokens[:end]))
            if block is None:
                break
            found.append(block)
        return found

    def use(self, blocks: List[int]) -> None:
        for block in blocks:
            if self.uses[block] == 0:
                self.free.remove(block)
            self.uses[block] += 1

    def take(self, count: int) -> List[int]:
        taken = self.free[:count]
        for block in taken:
            self.forget(block)
        self.use(taken)
        return taken

    def forget(self, block: int) -> None:
        prefix = self.prefix_of.pop(block, None)
        if prefix is not None:
            del self.by_prefix[prefix]

    def note(self, tokens: List[int], salt: Optional[str], blocks: List[int], computed: int) -> None:
        for number in range(computed // BLOCK):
            prefix = (salt, *tokens[: (number + 1) * BLOCK])
            if prefix not in self.by_prefix and blocks[number] not in self.prefix_of:
                self.by_prefix[prefix] = blocks[number]
                self.prefix_of[blocks[number]] = prefix

    def release(self, blocks: List[int]) -> None:
        for block in reversed(blocks):
            self.uses[block] -= 1
            assert self.uses[block] >= 0
            if self.uses[block] == 0:
                self.free.append(block)


class Engine:
    def __init__(self, context: Any, url: str, tp: int, mla: bool, stacked: bool, extra: Dict[str, Any], blocks: int = 66) -> None:
        from kvrail.vllm import KvrailConnector
        from kvrail.vllm.base import KVConnectorRole

        self.pipes, self.processes = [], []
        for rank in range(tp):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, url, rank, tp, mla, stacked, extra, blocks), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.answers("ready")
        self.connector = KvrailConnector(*Worker.two(url, tp, 0, mla, extra, blocks, KVConnectorRole.SCHEDULER))
        self.asynchronous = extra.get("kvrail.load_async", True)
        self.pool = Blocks(blocks)
        self.requests: Dict[str, VllmRequest] = {}
        self.waiting: List[VllmRequest] = []
        self.running: List[VllmRequest] = []
        self.loading: Dict[str, Any] = {}
        self.loading_now: Dict[str, Any] = {}  # what loads bring, for the workers' checks
        self.received: Dict[str, int] = {}
        self.sent: Dict[str, int] = {}
        self.held: Dict[str, List[int]] = {}  # finished, and their blocks are still being read
        self.finished: Set[str] = set()
        self.bad: Set[int] = set()
        self.checks: List[Any] = []
        self.numbers = {"finished": 0, "loaded": 0, "prompt": 0, "preempted": 0, "failed": 0, "held": 0}

    def answers(self, kind: str) -> List[Any]:
        answers = []
        for pipe in self.pipes:
            assert pipe.poll(120), "a worker does not answer"
            said, what = pipe.recv()
            assert said == kind, what
            answers.append(what)
        return answers

    def add(self, request: Request) -> None:
        made = self.requests[request.id] = VllmRequest(request)
        self.waiting.append(made)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running or self.held or self.loading)

    # -- schedule ----

    def schedule(self) -> Any:
        budget = BUDGET
        work: Dict[str, int] = {}
        preempted: Set[str] = set()
        new_blocks: Dict[str, List[int]] = {}
        for request in list(self.running):
            if request not in self.running or budget == 0:
                continue
            count = min(request.num_tokens - request.num_computed_tokens, budget)
            need = -(-(request.num_computed_tokens + count) // BLOCK) - len(request.blocks)
            while need > len(self.pool.free) and request in self.running:
                victim = self.running[-1]
                self.preempt(victim, preempted)
                budget += work.pop(victim.request_id, 0)
                new_blocks.pop(victim.request_id, None)
            if request in self.running:
                taken = self.pool.take(max(need, 0))
                request.blocks += taken
                new_blocks[request.request_id] = taken
                work[request.request_id] = count
                budget -= count
        new, resumed = [], set()
        for request in [] if preempted else list(self.waiting):
            if len(self.running) >= BATCH or budget == 0:
                break
            was_new = request.new
            if self.admit(request):
                count = min(request.num_tokens - request.num_computed_tokens, budget)
                budget -= count
                work[request.request_id] = count
                if was_new:
                    new.append(request)
                else:
                    resumed.add(request.request_id)
                    new_blocks[request.request_id] = list(request.blocks)
                request.new = False
        if not work and not self.running:
            self.unlock_waiting()
        cached = [r for r in self.running if r.request_id in work and r not in new]
        return SimpleNamespace(
            scheduled_new_reqs=[
                SimpleNamespace(req_id=r.request_id, num_computed_tokens=r.num_computed_tokens, block_ids=(list(r.blocks),)) for r in new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[r.request_id for r in cached],
                resumed_req_ids=resumed,
                new_block_ids=[(new_blocks[r.request_id],) if new_blocks.get(r.request_id) else None for r in cached],
                num_computed_tokens=[r.num_computed_tokens for r in cached],
            ),
            num_scheduled_tokens=work,
            scheduled_spec_decode_tokens={},
            finished_req_ids=set(self.finished),
        )

    def preempt(self, request: VllmRequest, preempted: Set[str]) -> None:
        self.numbers["preempted"] += 1
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks, request.num_computed_tokens, request.status = [], 0, Status.PREEMPTED
        self.waiting.insert(0, request)
        preempted.add(request.request_id)

    def unlock_waiting(self) -> None:
        """When loads have taken all blocks, so that nothing can run: the last in the queue gives its own back."""
        holders = [r for r in self.waiting if r.blocks and r.request_id not in self.loading]
        if holders and not self.loading:
            self.pool.release(holders[-1].blocks)
            holders[-1].blocks, holders[-1].num_computed_tokens = [], 0

    def admit(self, request: VllmRequest) -> bool:
        """From waiting to running, or to waiting for a load."""
        if request.request_id in self.loading:
            if self.received.get(request.request_id, 0) < len(self.pipes):
                return False
            for table in (self.received, self.loading, self.loading_now):
                del table[request.request_id]
            bad = [number for number, block in enumerate(request.blocks) if block in self.bad]
            self.bad -= set(request.blocks)
            there = request.num_computed_tokens
            if bad:
                there = min(there, bad[0] * BLOCK)
                request.failed += 1
                self.numbers["failed"] += 1
            else:
                self.numbers["loaded"] += request.external
            request.num_computed_tokens = min(there, request.num_tokens - 1)
            if there == 0:
                self.pool.release(request.blocks)
                request.blocks = []
            self.pool.note(request.tokens, request.cache_salt, request.blocks, request.num_computed_tokens)
            request.status = Status.WAITING
        local: List[int] = []
        external, later = 0, False
        if request.num_computed_tokens == 0:
            local = self.pool.find(request.tokens, request.cache_salt)
            external, later = self.connector.get_num_new_matched_tokens(request, len(local) * BLOCK)
            if external is None:
                return False
            assert 0 <= external < request.num_tokens - len(local) * BLOCK and (external or not later)
            assert not request.failed or external == 0, "it failed, and was offered again"
            computed = len(local) * BLOCK + external
            fresh = -(-(computed if later else request.num_tokens) // BLOCK) - len(local)
            unused = [block for block in local if self.pool.uses[block] == 0]
            if fresh + len(unused) > len(self.pool.free):
                return False
            self.pool.use(local)
            request.blocks = local + self.pool.take(fresh)
            request.num_computed_tokens = computed
        else:
            more = -(-request.num_tokens // BLOCK) - len(request.blocks)
            if more > len(self.pool.free):
                return False
            request.blocks += self.pool.take(max(more, 0))
        self.connector.update_state_after_alloc(request, SimpleNamespace(get_block_ids=lambda: (list(request.blocks),)), external)
        request.external = external
        if external:
            begin = len(local) * BLOCK
            self.loading_now[request.request_id] = (list(request.tokens), list(request.blocks), begin, begin + external)
        if later:
            request.status = Status.WAITING_FOR_REMOTE_KVS
            self.loading[request.request_id] = True
            return False
        self.waiting.remove(request)
        self.running.append(request)
        request.status = Status.RUNNING
        self.numbers["prompt"] += request.num_tokens
        return True

    # -- a step ----

    def begin(self) -> None:
        """Schedules a step and hands it to the workers."""
        self.loading_now = {} if not self.asynchronous else self.loading_now
        self.output = self.schedule()
        metadata = self.connector.build_connector_meta(self.output)
        work = []
        for id, count in self.output.num_scheduled_tokens.items():
            request = self.requests[id]
            begin = request.num_computed_tokens
            work.append((list(request.tokens), list(request.blocks), begin, begin + count))
        for pipe in self.pipes:
            pipe.send((metadata, work, set(self.finished), dict(self.loading_now), self.checks))
        self.finished, self.checks = set(), []

    def end(self) -> None:
        errors: Set[int] = set()
        for sent, received, bad in self.answers("step"):
            errors |= bad
            for id in received:
                self.received[id] = self.received.get(id, 0) + 1
                assert self.received[id] <= len(self.pipes), f"{id} was reported twice"
            for id in sent:
                self.sent[id] = self.sent.get(id, 0) + 1
        self.bad |= errors
        for id, count in list(self.sent.items()):
            assert id in self.held, f"{id} was reported as sent, and holds nothing"
            if count == len(self.pipes):
                del self.sent[id]
                self.release_held(id)
        for id in [id for id in self.received if id not in self.requests and self.received[id] == len(self.pipes)]:
            del self.received[id]  # aborted while it was being loaded
            self.loading.pop(id, None)
            self.loading_now.pop(id, None)
            self.release_held(id)
        for id, count in self.output.num_scheduled_tokens.items():
            if id in self.requests:
                self.computed(self.requests[id], count, errors)
        if not self.asynchronous:
            self.bad.clear()

    def release_held(self, id: str) -> None:
        """Blocks may be held for a load and for stores."""
        if id in self.loading and id not in self.requests:
            return
        self.pool.release(self.held.pop(id, []))

    def computed(self, request: VllmRequest, count: int, errors: Set[int]) -> None:
        bad = [number for number, block in enumerate(request.blocks) if block in errors]
        if bad and not self.asynchronous:
            # What this step computed stands on blocks that did not arrive: again from there.
            request.num_computed_tokens = bad[0] * BLOCK
            request.failed += 1
            self.numbers["failed"] += 1
            return
        if not self.asynchronous and request.external:
            self.numbers["loaded"] += request.external
            request.external = 0
        request.num_computed_tokens += count
        self.pool.note(request.tokens, request.cache_salt, request.blocks, request.num_computed_tokens)
        if request.num_computed_tokens < request.num_tokens:
            return
        if request.num_tokens - request.num_prompt_tokens < request.output:
            request.tokens.append(next_token(request.tokens))
            return
        self.checks.append((f"end of {request.request_id}", list(request.tokens), list(request.blocks), request.num_computed_tokens))
        self.numbers["finished"] += 1
        self.finish(request)

    def finish(self, request: VllmRequest) -> None:
        request.status = Status.FINISHED
        hold, _ = self.connector.request_finished(request, list(request.blocks))
        loading = request.request_id in self.loading
        del self.requests[request.request_id]
        (self.running if request in self.running else self.waiting).remove(request)
        self.finished.add(request.request_id)
        if hold or loading:
            self.numbers["held"] += 1
            self.held[request.request_id] = request.blocks
        else:
            self.pool.release(request.blocks)

    def abort(self, id: str) -> None:
        if id in self.requests:
            self.finish(self.requests[id])

    def state(self) -> str:
        waiting = [(r.request_id, r.status.name, r.num_tokens, r.num_computed_tokens, len(r.blocks)) for r in self.waiting]
        return f"waiting {waiting} loading {self.loading} received {self.received} held {self.held} free blocks {len(self.pool.free)}"

    def recover(self) -> None:
        """Until all have found the server again, as they do between requests of a service that is not as quick as this
        one."""
        for _ in range(2000):
            for pipe in self.pipes:
                pipe.send("healthy")
            if all(self.answers("healthy")) and self.connector._link.healthy:
                return
            time.sleep(0.01)
        raise AssertionError("a worker does not come back")

    def step(self) -> None:
        self.begin()
        self.end()

    def stop(self) -> Dict[str, int]:
        for pipe in self.pipes:
            pipe.send(None)
        checked = self.answers("stopped")
        self.connector.shutdown()
        for process in self.processes:
            process.join(30)
        return {**self.numbers, "checked": int(checked[0])}
