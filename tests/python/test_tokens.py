"""Token ids and pages out of Python objects, and the memory of earlier prompts."""
from __future__ import annotations

import array
import hashlib

import pytest

from kvrail import History, Tokens
from kvrail._tokens import Gate, ask, pages


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


@pytest.mark.parametrize("make", [list, tuple, lambda ids: array.array("q", ids), lambda ids: array.array("I", ids), Tokens])
def test_common_compares_with_lists_and_buffers_as_with_tokens(make: object) -> None:
    base = [0, 1, 2**30 - 1, 2**30, 2**32 - 1, 7, 0] * 200
    tokens = Tokens(base)
    assert tokens.common(make(base)) == len(base)  # type: ignore[operator]
    assert tokens.common(make(base + [1])) == len(base)  # type: ignore[operator]
    assert tokens.common(make([])) == 0  # type: ignore[operator]
    for at in (0, 1, 255, 256, 700, 1399):
        assert tokens.common(make(base[:at])) == at  # type: ignore[operator]
        assert tokens.common(make(base[:at] + [5] + base[at + 1 :])) == at  # type: ignore[operator]


def test_what_only_looks_like_a_token_is_not_the_same() -> None:
    tokens = Tokens([2**32 - 1, 5])
    assert tokens.common(array.array("i", [-1, 5])) == 0
    assert tokens.common(array.array("q", [-1, 5])) == 0
    assert Tokens([7]).common(array.array("q", [2**32 + 7])) == 0
    for bad in ([-1], [2**32], [2**64 + 2**32 - 1]):
        with pytest.raises(ValueError):
            tokens.common(bad)
    with pytest.raises(TypeError):
        tokens.common(["a"])
    assert Tokens([1, 0]).common([True, False]) == 2


def test_continued_tokens_share_their_beginning_and_never_each_others_end() -> None:
    first = Tokens(range(300))
    one, other = first.continued(list(range(305))), first.continued(list(range(300)) + [9] * 1000)
    again = one.continued(list(range(400)))
    assert [len(tokens) for tokens in (first, one, other, again)] == [300, 305, 1300, 400]
    assert list(first) == list(range(300)) and list(one) == list(range(305)) and list(again) == list(range(400))
    assert list(other) == list(range(300)) + [9] * 1000
    first.append([5])
    del first
    one.append([77])
    assert list(one) == [*range(305), 77] and list(again) == list(range(400)) and list(other)[300:] == [9] * 1000
    with pytest.raises(ValueError):
        one.continued([1, 2])
    with pytest.raises(ValueError):
        one.continued([0] * 306 + [-1])
    assert list(one.continued(list(one))) == list(one)


@pytest.mark.parametrize("count", [1, 1000, 4096, 32768])
def test_tokens_have_room_for_the_next_turn_so_that_going_on_copies_nothing(count: int) -> None:
    first = Tokens(range(count))
    turn = first.continued(range(count + 200))
    assert turn.address == first.address and list(turn) == list(range(count + 200))


def test_a_lookup_is_asked_with_gates_and_with_tokens_or_a_history() -> None:
    refuse = lambda foreign: ValueError("closed")  # noqa: E731
    gate = Gate(None, 0, refuse)
    for arguments in (
        (None, None, 0, "id", None, Tokens([1]), b"", None, 0.1),
        (gate, 7, 0, "id", None, Tokens([1]), b"", None, 0.1),
        (gate, None, 0, "id", None, [1], b"", None, 0.1),
        (gate, None, 0, "id", None, Tokens(), b"", None, 0.1),
        (gate, None, 0, "id", None, Tokens([1]), "", None, 0.1),
        (gate, None, 0, "id", None, Tokens([1]), b"", 7, 0.1),
    ):
        with pytest.raises(TypeError):
            ask(*arguments)
    history = History(4, 1 << 20)
    assert ask(gate, None, 0, "id", None, history, b"", list(range(8)), 0.1) is None  # nothing to guess from
    history.remember(Tokens(range(8)), digests(2))
    assert ask(gate, None, 0, "id", None, history, b"", None, 0.1) is None  # nor what
    gate.close()
    with pytest.raises(ValueError, match="closed"):
        ask(gate, None, 0, "id", None, history, b"", list(range(8)), 0.1)
    with pytest.raises(TypeError):
        ask(gate, None, 0, "id", None, history, b"", [*range(8), "x"], 0.1)
    assert gate.calls == 0


def test_tokens_that_are_being_read_can_not_be_appended_to() -> None:
    class Sly:
        def __index__(self) -> int:
            for tokens in (target, compared):
                with pytest.raises(BufferError):
                    tokens.append([1] * 100000)
            return 7

    target, compared = Tokens([1, 2]), Tokens([7, 8])
    compared_view = memoryview(compared)
    target.append([Sly()] * 3)
    assert list(target) == [1, 2, 7, 7, 7]
    compared_view.release()
    target_view = memoryview(target)
    assert compared.common([Sly(), 8]) == 2
    target_view.release()


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


@pytest.mark.parametrize("make", [list, tuple, lambda ids: array.array("q", ids), lambda ids: array.array("I", ids), Tokens])
def test_a_guess_is_what_the_prompt_goes_on_from(make: object) -> None:
    history = History(4, 1 << 20)
    turn = list(range(100, 510))
    remembered = Tokens(turn)
    history.remember(remembered, digests(102))
    for more in ([], [1, 2, 3], [1] * 1000):
        guess = history.guess(make(turn + more))  # type: ignore[operator]
        assert guess is not None and guess[1] == digests(102) and list(guess[0]) == turn + more
    guess = history.guess(make(turn[:408] + [5] * 70))  # type: ignore[operator]
    assert guess is not None and list(guess[0]) == turn[:408] + [5] * 70  # other tokens behind its last chunk
    assert list(remembered) == turn
    for ids in (turn[:407], [], [1], [5] * 500):
        assert history.guess(make(ids)) is None  # type: ignore[operator]


def test_a_guess_may_be_wrong_and_a_comparison_tells() -> None:
    history = History(4, 1 << 20)
    turn = list(range(100, 500))
    history.remember(Tokens(turn), digests(100))
    guessed = 0
    for at in range(400):
        other = list(turn)
        other[at] += 1
        guess = history.guess(other + [7])
        if guess is not None:
            guessed += 1
            assert guess[0].common(other + [7]) == at
    assert 300 < guessed < 400
    assert history.guess(turn[:399] + ["x"]) is None and history.guess([object()] * 400) is None
    with pytest.raises(ValueError):
        history.guess(turn + [-1])
    with pytest.raises(TypeError):
        history.guess(7)


def test_a_history_that_is_cleared_while_it_guesses_takes_nothing_away() -> None:
    class Sly:
        def __index__(self) -> int:
            history.clear()
            return 3

    history = History(4, 1 << 20)
    history.remember(Tokens(range(400)), digests(100))
    guess = history.guess([*range(400), Sly(), 5])
    assert guess is not None and list(guess[0]) == [*range(400), 3, 5] and guess[1] == digests(100) and history.bytes == 0


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
