"""A stand-in for SGLang: one process a tensor-parallel rank, each with scheduler, radix cache, paged pool and
connector, all fed the same commands and so scheduling alike; continuous batching with preemption and abort. Every load,
and every finished request, is checked token by token."""
from __future__ import annotations

import random
import time
import traceback
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence

import numpy
from conversations import Request, fingerprints, kv_of, next_token
from radix import Node, Radix

PAGE = 4
PAGES = 90
LAYERS = 2
BATCH = 4


class Collective:
    """The minimum over ranks, through shared memory."""

    def __init__(self, context: Any, size: int) -> None:
        self.values = context.Array("q", 8 * size, lock=False)
        self.barrier = context.Barrier(size)
        self.size = size

    def of(self, rank: int) -> Any:
        def agree(numbers: Sequence[int]) -> Sequence[int]:
            for column, number in enumerate(numbers):
                self.values[8 * rank + column] = number
            self.barrier.wait(60)
            least = [min(self.values[8 * row + column] for row in range(self.size)) for column in range(len(numbers))]
            self.barrier.wait(60)
            return least

        return agree


class Running:
    def __init__(self, request: Request, path: List[Node], pages: List[int]) -> None:
        self.request = request
        self.path = path  # locked pages of the tree
        self.pages = pages  # own pages behind them

    def page_of(self, position: int) -> int:
        number = position // PAGE
        return self.path[number].page if number < len(self.path) else self.pages[number - len(self.path)]


class Engine:
    def __init__(self, url: str, rank: int, size: int, mla: bool, agree: Any, seed: int) -> None:
        from kvrail.sglang import KvrailConnector

        self.rank = 0 if mla else rank
        planes = 1 if mla else 2
        shape = (PAGES * PAGE, 1, 2) if mla else (PAGES * PAGE, 2, 1)
        self.pools = [[numpy.zeros(shape, dtype=numpy.int64) for _ in range(LAYERS)] for _ in range(planes)]
        forms = {"kv_cache_pools": self.pools} if mla else {"k_pool": self.pools[0], "v_pool": self.pools[1]}
        self.connector = KvrailConnector(
            sgl_config=SimpleNamespace(model_path="mla" if mla else "mha"),
            tp_size=size,
            rank=rank,
            page_size=PAGE,
            host=url,
            port=0,
            tp_group=agree,
            mq_timeout=20.0,
            heartbeat_interval=0.2,
            **forms,
        )
        self.radix = Radix(PAGE, list(range(1, PAGES)))  # page 0 is the dummy that padding writes to
        self.waiting: List[Request] = []
        self.running: List[Running] = []
        self.chance = random.Random(seed)  # the same on all ranks
        self.numbers = {"finished": 0, "loaded": 0, "prompt": 0, "preempted": 0, "checked": 0}

    # -- bytes ----

    def compute(self, running: Running, begin: int, end: int) -> None:
        """The forward pass of these positions."""
        prints = fingerprints(running.request.all)[begin:end]
        slots = [running.page_of(position) * PAGE + position % PAGE for position in range(begin, end)]
        for plane, pool in enumerate(self.pools):
            for layer, tensor in enumerate(pool):
                tensor[slots] = kv_of(prints, layer, plane, self.rank)[:, None, None]

    def check(self, running: Running, begin: int, end: int) -> None:
        prints = fingerprints(running.request.all)[begin:end]
        slots = [running.page_of(position) * PAGE + position % PAGE for position in range(begin, end)]
        for plane, pool in enumerate(self.pools):
            for layer, tensor in enumerate(pool):
                wrong = (tensor[slots] != kv_of(prints, layer, plane, self.rank)[:, None, None]).any(axis=(1, 2))
                assert not wrong.any(), (
                    f"rank {self.rank} {running.request.id}: layer {layer} plane {plane}: wrong bytes at positions "
                    f"{(numpy.nonzero(wrong)[0] + begin).tolist()} of {begin}..{end}"
                )
        self.numbers["checked"] += end - begin

    # -- scheduling ----

    def step(self) -> None:
        for request in list(self.waiting):
            if len(self.running) >= BATCH:
                break
            if self.admit(request):
                self.waiting.remove(request)
        for running in list(self.running):
            if running in self.running:
                self.decode(running)

    def admit(self, request: Request) -> bool:
        """match_prefix, and if there is room init_load_back and the prefill."""
        tokens = request.all
        key = tokens[: (len(tokens) - 1) // PAGE * PAGE]  # the last token is computed in any case
        path = self.radix.match(key)
        have = len(path) * PAGE
        matched = self.connector.lookup_kv(key, request.id)
        assert matched % self.connector.chunk_size() == 0 and matched <= len(key)
        if matched <= have:
            self.connector.release_pending(request.id)
        self.radix.lock(path, 1)
        pages = self.radix.take(-(-len(tokens) // PAGE) - len(path))
        if pages is None:
            self.radix.lock(path, -1)
            return False  # it waits, and holds what it has locked
        running = Running(request, path, pages)
        self.numbers["prompt"] += len(tokens)
        if matched > have:
            self.load(running, key, matched, have)
        self.compute(running, len(running.path) * PAGE, len(tokens))
        self.running.append(running)
        return True

    def load(self, running: Running, key: List[int], matched: int, have: int) -> None:
        from kvrail.sglang import LoadMetadata

        pad = have % self.connector.chunk_size()
        count = (matched - have) // PAGE
        slots = numpy.full(matched + PAGE * self.chance.randrange(2), -1, dtype=numpy.int64)
        for number, page in enumerate(running.pages[:count]):
            slots[have + number * PAGE : have + (number + 1) * PAGE] = range(page * PAGE, (page + 1) * PAGE)
        before = [[tensor.copy() for tensor in pool] for pool in self.pools]
        got = self.connector.retrieve_kv(LoadMetadata(key, slots, have - pad, pad, running.request.id))
        fetched = got - pad if got else 0
        assert 0 <= fetched <= matched - have and fetched % PAGE == 0
        mine = {page * PAGE + i for page in running.pages[:count] for i in range(PAGE)}
        others = [slot for slot in range(PAGES * PAGE) if slot not in mine]
        for pool, old in zip(self.pools, before):
            for tensor, was in zip(pool, old):
                assert (tensor[others] == was[others]).all(), "a page was written that was not ours to load"
        if fetched:
            self.check(running, have, have + fetched)
            loaded = fetched // PAGE
            new = self.radix.add(running.path, key[have : have + fetched], running.pages[:loaded])
            self.radix.lock(new[len(running.path) :], 1)
            running.path, running.pages = new, running.pages[loaded:]
            self.numbers["loaded"] += fetched
        else:
            self.connector.release_pending(running.request.id)

    def decode(self, running: Running) -> None:
        request = running.request
        request.produced.append(next_token(request.all))
        if len(request.produced) >= request.output:
            self.finish(running, insert=True)
            return
        length = len(request.all)
        if length > (len(running.path) + len(running.pages)) * PAGE:
            more = self.radix.take(1)
            if more is None:
                self.preempt(running)
                return
            running.pages += more
        self.compute(running, length - 1, length)

    def preempt(self, running: Running) -> None:
        """Retracted: its pages go, and it begins again later with what it has produced."""
        self.numbers["preempted"] += 1
        self.radix.lock(running.path, -1)
        self.radix.free += running.pages
        self.running.remove(running)
        self.waiting.insert(0, running.request)

    def finish(self, running: Running, insert: bool) -> None:
        """cache_finished_req."""
        from kvrail.sglang import StoreMetadata

        request = running.request
        self.running.remove(running)
        if not insert:
            self.radix.lock(running.path, -1)
            self.radix.free += running.pages
            self.connector.end_session(request.id)
            return
        tokens = request.all[:-1]  # the last one's KV was never computed
        self.check(running, 0, len(tokens))
        whole = len(tokens) // PAGE
        path = self.radix.add(running.path, tokens[len(running.path) * PAGE :], running.pages[: whole - len(running.path)])
        self.radix.lock(path[len(running.path) :], 1)
        self.radix.free += running.pages[whole - len(running.path) :]
        slots = numpy.array([node.page * PAGE + i for node in path for i in range(PAGE)], dtype=numpy.int64)
        store = StoreMetadata(None, tokens[: whole * PAGE], slots, 0, request.id)
        if self.chance.random() < 0.5:
            self.connector.store_kv(store)
        else:
            future = self.connector.store_kv_async(store)
            while not future.query():
                pass
            future.result()
        self.connector.end_session(request.id)
        self.radix.lock(path, -1)
        self.numbers["finished"] += 1

    def abort(self, id: str, silently: bool) -> None:
        for request in list(self.waiting):
            if request.id == id:
                self.waiting.remove(request)
                if not silently:  # some versions do not tell the connector
                    self.connector.end_session(id)
        for running in list(self.running):
            if running.request.id == id:
                self.finish(running, insert=False)


def serve(pipe: Any, url: str, rank: int, size: int, mla: bool, collective: Collective, seed: int) -> None:
    """The process of one rank: commands in, numbers out."""
    try:
        engine = Engine(url, rank, size, mla, collective.of(rank), seed)
        pipe.send(("ready", {}))
        while True:
            command, *arguments = pipe.recv()
            if command == "add":
                engine.waiting.append(arguments[0])
            elif command == "abort":
                engine.abort(*arguments)
            elif command == "step":
                engine.step()
                pipe.send(("step", (len(engine.waiting) + len(engine.running), sorted(r.id for r in engine.waiting))))
            elif command == "healthy":
                pipe.send(("healthy", engine.connector.is_healthy))
            elif command == "stop":
                engine.connector.close()
                pipe.send(("stopped", engine.numbers))
                return
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


class Service:
    """All ranks, as the one who starts them sees them."""

    def __init__(self, context: Any, url: str, size: int, mla: bool, seed: int) -> None:
        collective = Collective(context, size)
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, url, rank, size, mla, collective, seed), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.answers("ready")

    def say(self, *command: Any) -> None:
        for pipe in self.pipes:
            pipe.send(command)

    def answers(self, kind: str) -> List[Any]:
        answers = []
        for pipe in self.pipes:
            assert pipe.poll(120), "a rank does not answer"
            said, what = pipe.recv()
            assert said == kind, what
            answers.append(what)
        return answers

    def step(self) -> int:
        self.say("step")
        answers = self.answers("step")
        assert all(answer == answers[0] for answer in answers), f"the ranks differ: {answers}"
        return int(answers[0][0])

    def recover(self) -> None:
        """Until all ranks have found the server again, as they do between requests of a service that is not as quick as
        this one."""
        for _ in range(2000):
            self.say("healthy")
            if all(self.answers("healthy")):
                return
            time.sleep(0.01)
        raise AssertionError("a rank does not come back")

    def stop(self) -> Dict[str, int]:
        self.say("stop")
        numbers = self.answers("stopped")
        self.join()
        return dict(numbers[0])

    def kill(self, rank: Optional[int] = None) -> None:
        """One rank is killed, and then the others, as a launcher does."""
        if rank is not None:
            self.processes[rank].kill()
            self.processes[rank].join()
        for process in self.processes:
            process.kill()
        self.join()

    def join(self) -> None:
        for process in self.processes:
            process.join(30)
        for pipe in self.pipes:
            pipe.close()



