"""Token ids and pages out of Python objects, and the memory of earlier prompts."""
from __future__ import annotations

import array
import hashlib

import pytest

from kvrail import History, Tokens
from kvrail._tokens import pages


def digests(count: int) -> bytes:
    return b"".join(hashlib.sha256(bytes([i])).digest() for i in range(count))


@pytest.mark.parametrize("make", [list, tuple, lambda ids: array.array("q", ids), lambda ids: array.array("I", ids), range])
def test_tokens_come_from_lists_and_buffers(make: object) -> None:
    ids = range(5, 1005) if make is range else [0, 1, 2**30 - 1, 2**30, 2**31, 2**32 - 1, 7] * 100
    tokens = Tokens(ids if make is range else make(ids))  # type: ignore[operator]
    assert list(tokens) == list(ids)
    assert bytes(memoryview(tokens)) == b"".join(i.to_bytes(4, "little") for i in ids)
    assert memoryview(tokens).tolist() == list(ids) and list(Tokens(tokens)) == list(ids)
    with pytest.raises(BufferError):
        tokens.append(tokens)  # a buffer of itself


def test_int_like_objects_are_tokens_too() -> None:
    numpy = pytest.importorskip("numpy")
    assert list(Tokens([numpy.int64(7), True, 3])) == [7, 1, 3]
    assert list(Tokens(numpy.arange(5, dtype=numpy.int32))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad", [[-1], [2**32], [2**80], array.array("q", [5, -1]), array.array("i", [-1]), array.array("Q", [2**32])]
)
def test_what_is_no_token_is_refused_and_changes_nothing(bad: object) -> None:
    tokens = Tokens([1, 2])
    with pytest.raises(ValueError):
        tokens.append(bad)
    assert list(tokens) == [1, 2]


@pytest.mark.parametrize("bad", [["a"], [1.5], 7, b"bytes", array.array("d", [1.0]), memoryview(bytes(16)).cast("B", (4, 4))])
def test_what_is_no_list_of_ints_is_a_type_error(bad: object) -> None:
    with pytest.raises(TypeError):
        Tokens(bad)


def test_a_list_that_changes_while_it_is_read_is_an_error() -> None:
    class Sly:
        def __index__(self) -> int:
            ids.clear()
            return 1

    ids: list[object] = [Sly(), 2, 3]
    with pytest.raises(RuntimeError):
        Tokens(ids)


def test_common_counts_equal_leading_tokens() -> None:
    base = list(range(1000))
    assert Tokens(base).common(Tokens(base[:700])) == 700
    assert Tokens(base).common(Tokens(base[:511] + [5] + base[512:])) == 511
    assert Tokens().common(Tokens(base)) == 0


def test_a_buffer_that_is_out_keeps_the_array_in_its_place() -> None:
    tokens = Tokens([1])
    view = memoryview(tokens)
    with pytest.raises(BufferError):
        tokens.append(range(1000))
    view.release()
    tokens.append(range(1000))
    assert len(tokens) == 1001


def test_history_finds_the_longest_prompt_that_begins_alike() -> None:
    history = History(4, 1 << 20)
    turn = list(range(10))
    history.remember(Tokens(turn), digests(2))
    assert history.find(Tokens(turn[:7])) is None  # one chunk of it only
    assert history.find(Tokens(turn[:8])) == digests(2)
    assert history.find(Tokens(turn + [77] * 10)) == digests(2)
    history.remember(Tokens(turn + [77] * 10), digests(5))
    assert history.find(Tokens(turn + [77] * 10)) == digests(5)
    assert history.find(Tokens(turn)) is None  # what it went on from has gone
    assert history.hits == 3 and history.misses == 2


def test_history_believes_nothing_that_differs_anywhere() -> None:
    history = History(4, 1 << 20)
    ids = list(range(100, 500))
    history.remember(Tokens(ids), digests(100))
    for at in range(0, 400, 13):
        other = list(ids)
        other[at] += 1
        assert history.find(Tokens(other)) is None


def test_history_keeps_to_its_memory_and_forgets_the_oldest() -> None:
    history = History(4, 20000)
    for i in range(100):
        history.remember(Tokens([i] * 256), digests(64))
        assert history.bytes <= 20000
        history.find(Tokens([0] * 256))  # so that it stays
    assert history.find(Tokens([0] * 256)) is not None
    assert history.find(Tokens([99] * 256)) is not None
    assert history.find(Tokens([1] * 256)) is None
    history.clear()
    assert history.bytes == 0 and history.find(Tokens([0] * 256)) is None


def test_history_refuses_digests_that_can_not_be() -> None:
    history = History(4, 1000)
    for count, data in ((7, digests(2)), (8, b""), (8, digests(2)[:-1])):
        with pytest.raises(ValueError):
            history.remember(Tokens(range(count)), data)


def test_pages_are_read_from_slots() -> None:
    slots = array.array("q", [-1, -1, -1, -1, 8, 9, 10, 11, 40, 41, 42, 43, 0, 1, 2, 3])
    assert list(pages(slots, 4, 12, 4)) == [2, 10, 0]
    assert list(pages(slots, 4, 0, 4)) == []
    assert list(pages(array.array("q", [5, 9, 2]), 0, 3, 1)) == [5, 9, 2]


@pytest.mark.parametrize(
    "slots, first, count",
    [
        ([-1, -1, -1, -1], 0, 4),
        ([1, 2, 3, 4], 0, 4),
        ([0, 1, 2, 4], 0, 4),
        ([0, 1, 3, 2], 0, 4),
        ([4, 5, 6, -1], 0, 4),
        ([0, 1, 2, 3], 0, 3),
        ([0, 1, 2, 3], 1, 4),
        ([0, 1, 2, 3], -1, 4),
        ([2**62, 2**62 + 1, 2**62 + 2, 2**62 + 3], 0, 4),
    ],
)
def test_slots_that_are_no_whole_page_are_refused(slots: list[int], first: int, count: int) -> None:
    with pytest.raises(ValueError):
        pages(array.array("q", slots), first, count, 4)
