#!/usr/bin/env python3
"""Hit rates of eviction policies on traces of requests, without a server.

usage: bench/eviction.py TRACE.jsonl [SHARE ...]     (shares of the trace's distinct chunks that fit, in percent)

A trace has a JSON object a line with "hash_ids": the chunks of a prompt, in order. A request finds the chunks of its prefix
up to the first that is not there, and has all of them stored afterwards, from the last to the first, as kvrail uses them.
Counted is the share of all chunks that were found. "forward" is LRU where the chunks of a prompt are used from the first to the last:
what it costs when late chunks do not go before early ones.
"""
import json
import sys
from collections import OrderedDict


class Lru:
    """Least recently used first."""

    def __init__(self, capacity):
        self.capacity, self.kept = capacity, OrderedDict()

    def __contains__(self, chunk):
        return chunk in self.kept

    def use(self, chunk):
        if chunk in self.kept:
            self.kept.move_to_end(chunk)
            return
        if len(self.kept) >= self.capacity:
            self.kept.popitem(last=False)
        self.kept[chunk] = True


class S3Fifo:
    """A small queue for what is new, a main one for what was used again, and a list of what left the small one."""

    def __init__(self, capacity):
        self.small_size = max(1, capacity // 10)
        self.capacity = capacity
        self.small, self.main, self.ghost = OrderedDict(), OrderedDict(), OrderedDict()

    def __contains__(self, chunk):
        return chunk in self.small or chunk in self.main

    def use(self, chunk):
        for queue in (self.small, self.main):
            if chunk in queue:
                queue[chunk] = min(3, queue[chunk] + 1)
                return
        while len(self.small) + len(self.main) >= self.capacity:
            self.evict()
        if chunk in self.ghost:
            del self.ghost[chunk]
            self.main[chunk] = 0
        else:
            self.small[chunk] = 0

    def evict(self):
        if len(self.small) >= self.small_size or not self.main:
            chunk, uses = self.small.popitem(last=False)
            if uses > 1:
                self.main[chunk] = 0
                return
            self.ghost[chunk] = True
            while len(self.ghost) > self.capacity - self.small_size:
                self.ghost.popitem(last=False)
            return
        chunk, uses = self.main.popitem(last=False)
        if uses > 0:
            self.main[chunk] = uses - 1


class Arc:
    """Recency and frequency, whose shares adapt to what was missed."""

    def __init__(self, capacity):
        self.capacity, self.target = capacity, 0
        self.once, self.often = OrderedDict(), OrderedDict()
        self.gone_once, self.gone_often = OrderedDict(), OrderedDict()

    def __contains__(self, chunk):
        return chunk in self.once or chunk in self.often

    def replace(self, in_often):
        if self.once and (len(self.once) > self.target or (in_often and len(self.once) == self.target)) or not self.often:
            chunk, _ = self.once.popitem(last=False)
            self.gone_once[chunk] = True
        else:
            chunk, _ = self.often.popitem(last=False)
            self.gone_often[chunk] = True

    def use(self, chunk):
        if chunk in self.once or chunk in self.often:
            self.once.pop(chunk, None)
            self.often.pop(chunk, None)
            self.often[chunk] = True
        elif chunk in self.gone_once:
            self.target = min(self.capacity, self.target + max(1, len(self.gone_often) // len(self.gone_once)))
            self.replace(False)
            del self.gone_once[chunk]
            self.often[chunk] = True
        elif chunk in self.gone_often:
            self.target = max(0, self.target - max(1, len(self.gone_once) // len(self.gone_often)))
            self.replace(True)
            del self.gone_often[chunk]
            self.often[chunk] = True
        else:
            self.make_room()
            self.once[chunk] = True

    def make_room(self):
        both = len(self.once) + len(self.gone_once)
        total = both + len(self.often) + len(self.gone_often)
        if both == self.capacity:
            if self.gone_once:
                self.gone_once.popitem(last=False)
                self.replace(False)
            else:
                self.once.popitem(last=False)
        elif total >= self.capacity:
            if total == 2 * self.capacity:
                self.gone_often.popitem(last=False)
            self.replace(False)


class Segmented:
    """kvraild --eviction segmented: what was not used since it came gives while it is half, and what comes back is known."""

    def __init__(self, capacity):
        self.capacity, self.evicted = capacity, 0
        self.fresh, self.reused, self.ghosts = OrderedDict(), OrderedDict(), {}

    def __contains__(self, chunk):
        return chunk in self.fresh or chunk in self.reused

    def use(self, chunk):
        if chunk in self:
            self.fresh.pop(chunk, None)
            self.reused[chunk] = True
            self.reused.move_to_end(chunk)
            return
        number = self.ghosts.pop(chunk, None)
        back = number is not None and self.evicted - number <= 2 * self.capacity
        while len(self.fresh) + len(self.reused) >= self.capacity:
            segment = self.fresh if 2 * len(self.fresh) >= self.capacity else self.reused
            gone, _ = segment.popitem(last=False)
            self.evicted += 1
            self.ghosts[gone] = self.evicted
        (self.reused if back else self.fresh)[chunk] = True


def hit_rate(policy, requests, order=reversed):
    asked = found = 0
    for chunks in requests:
        asked += len(chunks)
        for chunk in chunks:
            if chunk not in policy:
                break
            found += 1
        for chunk in order(chunks):
            policy.use(chunk)
    return 100 * found / asked


def main():
    with open(sys.argv[1], encoding="utf-8") as trace:
        requests = [json.loads(line)["hash_ids"] for line in trace if line.strip()]
    distinct = len({chunk for chunks in requests for chunk in chunks})
    shares = [float(text) for text in sys.argv[2:]] or [0.5, 1, 2, 5, 10, 20, 50]
    print(f"{len(requests)} requests, {sum(map(len, requests))} chunks, {distinct} distinct")
    print("share    capacity    LRU      segmented  S3-FIFO  ARC      forward")
    for share in shares:
        capacity = max(16, int(distinct * share / 100))
        rates = [hit_rate(policy(capacity), requests) for policy in (Lru, Segmented, S3Fifo, Arc)]
        rates.append(hit_rate(Lru(capacity), requests, iter))
        print(f"{share:5.1f} %  {capacity:8d}  " + "  ".join(f"{rate:6.2f} %" for rate in rates))


if __name__ == "__main__":
    main()
