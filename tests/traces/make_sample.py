#!/usr/bin/env python3
"""Writes sample.jsonl: made-up conversations in the line form of Mooncake's traces. The same numbers every time.

usage: tests/traces/make_sample.py > tests/traces/sample.jsonl

Each conversation begins with one of a few instructions (shared by many), and every turn's prompt holds all turns before it. An id
stands for 512 tokens and all before them; the last block of a prompt is partial, and another block once more tokens have come.
"""
import json
import math
import random

BLOCK = 512
CONVERSATIONS = 96
INSTRUCTIONS = [2900, 1750, 1100, 620, 4100, 300]  # tokens
POPULARITY = [30, 22, 14, 10, 8, 5]
PROMPT_MAX = 16000


def main():
    source = random.Random(20240607)  # .random() alone, whose numbers no version of Python has changed

    def between(low, high):  # long ones are rare
        return int(low * math.exp(source.random() * math.log(high / low)))

    def pick(weights):
        at = source.random() * sum(weights)
        for index, weight in enumerate(weights):
            at -= weight
            if at < 0:
                return index
        return len(weights) - 1

    turns = []
    start = 0.0
    for number in range(CONVERSATIONS):
        start += -math.log(1 - source.random()) * 2500
        kind = pick(POPULARITY)
        history, time = INSTRUCTIONS[kind], start
        for _ in range(1 + between(1, 9)):
            history += between(60, 1400)
            if history > PROMPT_MAX:
                break
            answer = between(40, 700)
            turns.append((int(time), number, kind, history, answer))
            history += answer
            time += 3000 + answer * 25 - math.log(1 - source.random()) * 80000
    turns.sort()

    ids = {}
    for time, number, kind, length, answer in turns:
        blocks = []
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            whole = end - begin == BLOCK
            key = (-1 - kind, begin, 0) if end <= INSTRUCTIONS[kind] and whole else (number, begin, 0 if whole else length)
            blocks.append(ids.setdefault(key, len(ids)))
        print(json.dumps({"timestamp": time, "input_length": length, "output_length": answer, "hash_ids": blocks}))


main()
