"""A stand-in for TensorRT-LLM: the executor of rank 0 (block pool with reuse of blocks, chunked context, loads before the
step that uses them) in this process, workers in processes of their own; what passes between them is pickled, as MPI does.
Every load and every finished request is checked token by token. The pools are NumPy's, or PyTorch's on a device."""
from __future__ import annotations

import os
import time
import traceback
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import numpy
from conversations import Request, fingerprints, kv_of, next_token
from vllm_engine import BLOCK, Blocks

LAYERS, HEADS, SIZE = 2, 2, 3
BUDGET = 48  # tokens of a step
BATCH = 4


class LlmRequest:
    """The fields that the connector reads, and the engine's own."""

    def __init__(self, number: int, request: Request) -> None:
        self.request_id = number
        self.name = request.id
        self.tokens = list(request.tokens)
        self.prompt_length = len(request.tokens)
        self.output = request.output
        self.salt = request.salt or None
        self.cache_salt_id = sum(request.salt.encode()) if request.salt else None
        self.blocks: List[int] = []
        self.told = 0  # blocks that the connector has been told of
        self.reused = 0  # tokens that were in the pool
        self.matched = 0  # tokens that the connector brings
        self.computed = 0

    def get_tokens(self, beam: int) -> List[int]:
        assert beam == 0
        return list(self.tokens)


def arguments(tp: int) -> Any:
    cache = SimpleNamespace(tokens_per_block=BLOCK, dtype="auto", enable_partial_reuse=False)
    return SimpleNamespace(model="lab/model", tensor_parallel_size=tp, dtype="int64", kv_cache_config=cache)


# ---- workers -----------------------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, rank: int, tp: int, blocks: int, device: Optional[str]) -> None:
        from kvrail.tensorrt_llm import KvrailWorker

        os.environ["PMI_RANK"] = str(rank)
        self.rank = rank
        shape = (blocks, LAYERS, 2, HEADS * BLOCK * SIZE)
        self.stream: Any = None
        if device is None:
            pool: Any = numpy.zeros(shape, dtype=numpy.int64)
            cells = pool.reshape(blocks, LAYERS, 2, HEADS, BLOCK, SIZE).transpose(0, 1, 2, 4, 3, 5)
            self.put = lambda values: values
            self.take = lambda values: values
        else:
            import torch

            pool = torch.zeros(shape, dtype=torch.int64, device=device)
            cells = pool.view(blocks, LAYERS, 2, HEADS, BLOCK, SIZE).permute(0, 1, 2, 4, 3, 5)
            self.put = lambda values: torch.from_numpy(values).to(device)
            self.take = lambda values: values.cpu().numpy()
            if device.startswith("cuda"):
                self.stream = torch.cuda.Stream()
                torch.cuda.set_stream(self.stream)
        self.cells = cells  # [block, layer, plane, token, head, size]
        self.connector = KvrailWorker(arguments(tp))
        self.connector.register_kv_caches(pool)
        self.checked = 0

    def where(self, blocks: List[int], begin: int, end: int) -> Tuple[List[int], List[int]]:
        return [blocks[at // BLOCK] for at in range(begin, end)], [at % BLOCK for at in range(begin, end)]

    def compute(self, tokens: List[int], blocks: List[int], begin: int, end: int) -> None:
        prints, where = fingerprints(tokens)[begin:end], self.where(blocks, begin, end)
        for layer in range(LAYERS):
            for plane in range(2):
                self.cells[:, layer, plane][where] = self.put(kv_of(prints, layer, plane, self.rank).reshape(-1, 1, 1))

    def check(self, what: str, tokens: List[int], blocks: List[int], begin: int, end: int) -> None:
        prints, where = fingerprints(tokens)[begin:end], self.where(blocks, begin, end)
        for layer in range(LAYERS):
            for plane in range(2):
                there = self.take(self.cells[:, layer, plane][where])
                wrong = (there != kv_of(prints, layer, plane, self.rank).reshape(-1, 1, 1)).any(axis=(1, 2))
                assert not wrong.any(), (
                    f"{what}: rank {self.rank} layer {layer} plane {plane}: wrong bytes at {(numpy.nonzero(wrong)[0] + begin).tolist()} "
                    f"of {begin}..{end}"
                )
        self.checked += end - begin

    def step(self, metadata: Any, loads: List[Any], work: List[Any], finished: List[int], check: List[Any]) -> Tuple[bool, List[int]]:
        """One step of the executor. check: what the last one finished, while its blocks are as they were. Returns whether
        the loads came, without which nothing is computed, and whose stores are done."""
        for what, tokens, blocks, end in check:
            self.check(what, tokens, blocks, 0, end)
        self.connector.bind_connector_meta(metadata)
        try:
            self.connector.start_load_kv(self.stream)
        except RuntimeError as error:
            assert "kvrail" in str(error) and loads, error
            saved, loaded = self.connector.get_finished(finished, [])
            return False, saved
        for layer in range(LAYERS):
            self.connector.wait_for_layer_load(layer, self.stream)
            if layer == 0:
                for what, tokens, blocks, begin, end in loads:
                    self.check(what, tokens, blocks, begin, end)
                for tokens, blocks, begin, end in work:
                    self.compute(tokens, blocks, begin, end)
            self.connector.save_kv_layer(layer, self.stream)
        self.connector.wait_for_save(self.stream)
        saved, loaded = self.connector.get_finished(finished, [])
        assert not loaded
        return True, saved


def serve(pipe: Any, *parameters: Any) -> None:
    try:
        worker = Worker(*parameters)
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


# ---- the executor --------------------------------------------------------------------------------------------------------------


class Engine:
    """$KVRAIL_URL says where the server is."""

    def __init__(self, context: Any, tp: int, blocks: int = 90, device: Optional[str] = None) -> None:
        from kvrail.tensorrt_llm import KvrailScheduler

        self.pipes, self.processes = [], []
        for rank in range(tp):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, rank, tp, blocks, device), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.connector = KvrailScheduler(arguments(tp))  # while the workers make theirs
        self.answers("ready")
        self.pool = Blocks(blocks)
        self.waiting: List[LlmRequest] = []
        self.running: List[LlmRequest] = []
        self.held: Dict[int, Tuple[List[int], int]] = {}  # whose stores are read from: blocks, ranks that are done
        self.finished: List[int] = []  # since the last step, and held
        self.checks: List[Any] = []
        self.fresh: Set[int] = set()
        self.count = 0
        self.numbers = {"finished": 0, "loaded": 0, "prompt": 0, "failed": 0, "held": 0}

    def answers(self, kind: str) -> List[Any]:
        answers = []
        for pipe in self.pipes:
            assert pipe.poll(120), "a worker does not answer"
            said, what = pipe.recv()
            assert said == kind, what
            answers.append(what)
        return answers

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running or self.held)

    def add(self, request: Request) -> None:
        self.count += 1
        self.waiting.append(LlmRequest(self.count, request))

    # -- a step ----

    def admit(self, request: LlmRequest) -> bool:
        """Only with blocks for all that it will ever have: nothing is preempted."""
        local = self.pool.find(request.tokens, request.salt)
        total = -(-(len(request.tokens) + request.output) // BLOCK)
        if total - len(local) + sum(self.pool.uses[block] == 0 for block in local) > len(self.pool.free):
            return False
        request.reused = len(local) * BLOCK
        matched, later = self.connector.get_num_new_matched_tokens(request, request.reused)
        assert not later and 0 <= matched < len(request.tokens) - request.reused
        self.pool.use(local)
        request.blocks = local + self.pool.take(total - len(local))
        request.matched, request.computed = matched, request.reused + matched
        self.connector.update_state_after_alloc(request, self.used(request, len(request.tokens)))
        self.numbers["prompt"] += len(request.tokens)
        return True

    @staticmethod
    def used(request: LlmRequest, tokens: int) -> List[int]:
        return request.blocks[: -(-tokens // BLOCK)]

    def data(self, request: LlmRequest, position: int, count: int) -> Any:
        blocks = self.used(request, len(request.tokens))
        new, request.told = blocks[request.told :], len(blocks)
        return SimpleNamespace(
            request_id=request.request_id,
            new_tokens=request.tokens[position : position + count],
            new_block_ids=new,
            computed_position=position,
            num_scheduled_tokens=count,
        )

    def begin(self, meanwhile: Callable[[List[Any]], None] = lambda loads: None) -> None:
        """Schedules a step and hands it to the workers. meanwhile: in between, with the step's loads."""
        while self.waiting and len(self.running) < BATCH and self.admit(self.waiting[0]):
            self.fresh.add(self.waiting[0].request_id)
            self.running.append(self.waiting.pop(0))
        budget, new, cached, loads, work = BUDGET, [], [], [], []
        self.counts: Dict[int, int] = {}
        for request in self.running:
            count = min(len(request.tokens) - request.computed, budget)
            if count == 0:
                continue
            budget -= count
            self.counts[request.request_id] = count
            work.append((list(request.tokens), list(request.blocks), request.computed, request.computed + count))
            if request.request_id in self.fresh:
                # What the connector brings is not in the position yet.
                new.append(self.data(request, request.reused, count))
                if request.matched:
                    what = (f"load of {request.name}", list(request.tokens), list(request.blocks), request.reused, request.reused + request.matched)
                    loads.append(what)
            else:
                cached.append(self.data(request, request.computed, count))
        metadata = self.connector.build_connector_meta(SimpleNamespace(new_requests=new, cached_requests=cached))
        meanwhile(loads)
        for pipe in self.pipes:
            pipe.send((metadata, loads, work, list(self.finished), self.checks))
        self.finished, self.checks = [], []

    def end(self) -> None:
        came = True
        for good, saved in self.answers("step"):
            came = came and good
            for number in saved:
                assert number in self.held, f"{number} was reported as saved, and holds nothing"
                blocks, ranks = self.held[number]
                self.held[number] = (blocks, ranks + 1)
        for number, (blocks, ranks) in list(self.held.items()):
            assert ranks <= len(self.pipes), f"{number} was reported twice"
            if ranks == len(self.pipes):
                self.pool.release(self.held.pop(number)[0])
        if not came:
            # The executor gives up all that it has under way.
            for request in list(self.running):
                self.numbers["failed"] += 1
                self.finish(request)
            return
        for request in list(self.running):
            if request.request_id in self.counts:
                self.computed(request, self.counts[request.request_id])

    def computed(self, request: LlmRequest, count: int) -> None:
        if request.request_id in self.fresh:
            self.fresh.discard(request.request_id)
            self.numbers["loaded"] += request.matched
        request.computed += count
        self.pool.note(request.tokens, request.salt, request.blocks, request.computed)
        if request.computed < len(request.tokens):
            return
        if len(request.tokens) - request.prompt_length < request.output:
            request.tokens.append(next_token(request.tokens))
            return
        self.checks.append((f"end of {request.name}", list(request.tokens), list(request.blocks), request.computed))
        self.numbers["finished"] += 1
        self.finish(request)

    def finish(self, request: LlmRequest) -> None:
        self.running.remove(request)
        self.fresh.discard(request.request_id)
        if self.connector.request_finished(request, self.used(request, len(request.tokens))):
            self.numbers["held"] += 1
            self.held[request.request_id] = (request.blocks, 0)
            self.finished.append(request.request_id)
        else:
            self.pool.release(request.blocks)

    def abort(self, number: int) -> None:
        """Of the queue, or of what runs."""
        everyone = self.running + self.waiting
        request = everyone[number % len(everyone)]
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self.finish(request)

    def step(self) -> None:
        self.begin()
        self.end()

    def recover(self) -> None:
        """Until all have found the server again."""
        for _ in range(2000):
            for pipe in self.pipes:
                pipe.send("healthy")
            if all(self.answers("healthy")) and self.connector._link.healthy:
                return
            time.sleep(0.01)
        raise AssertionError("a worker does not come back")

    def stop(self) -> Dict[str, int]:
        for pipe in self.pipes:
            pipe.send(None)
        checked = self.answers("stopped")
        self.connector.shutdown()
        for process in self.processes:
            process.join(30)
        return {**self.numbers, "checked": int(checked[0])}
