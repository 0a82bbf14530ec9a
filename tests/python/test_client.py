"""The client against a real server."""
from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
import time

import pytest
from serving import CHUNK, PAGE, Pool, Server

import kvrail

PER_CHUNK = CHUNK // PAGE


def stored(pool: Pool, id: str, tokens: list[int], first_block: int = 0) -> int:
    """Stores all whole chunks of these tokens with pages 1, 2, ... in them."""
    session = pool.registration.session(id)
    session.tokens(tokens)
    blocks = list(range(first_block, first_block + session.chunks * PER_CHUNK))
    for i, block in enumerate(blocks):
        pool.fill(block, i + 1)
    result = session.store(0, session.chunks, blocks)
    session.end()
    return result.chunks


def test_what_was_stored_is_found_and_comes_back_byte_for_byte(pool: Pool) -> None:
    tokens = list(range(100, 100 + 3 * CHUNK + 5))
    assert stored(pool, "a", tokens) == 3
    for block in range(Pool.BLOCKS):
        pool.fill(block, 0)
    with pool.registration.session("b") as session:
        session.tokens(tokens)
        assert session.chunks == 3
        assert session.lookup().tokens == 3 * CHUNK
        blocks = [40 - i for i in range(3 * PER_CHUNK)]
        result = session.retrieve(0, 3, blocks)
        assert result.complete and result.leading() == 3
        assert result.outcomes == bytes([kvrail.DELIVERED] * 3)
        for i, block in enumerate(blocks):
            assert pool.page(block) == bytes([i + 1]) * 2 * Pool.BYTES
        session.end()


def test_skipped_tokens_leave_their_blocks_alone(pool: Pool) -> None:
    tokens = list(range(2 * CHUNK))
    stored(pool, "a", tokens)
    for block in range(Pool.BLOCKS):
        pool.fill(block, 77)
    session = pool.registration.session("b")
    session.tokens(tokens)
    blocks = [kvrail.NULL_BLOCK] * 2 + list(range(20, 20 + 2 * PER_CHUNK - 2))
    assert session.retrieve(0, 2, blocks, skip_tokens=2 * PAGE).complete
    assert pool.page(20)[0] == 3
    assert pool.page(0)[0] == 77
    assert pool.page(19)[0] == 77
    session.end()


def test_another_salt_another_model_and_another_prefix_are_misses(client: kvrail.Client, pool: Pool) -> None:
    """pitfalls F01"""
    tokens = list(range(CHUNK))
    stored(pool, "a", tokens)
    for id, salt, ids in (("b", "salt", tokens), ("c", None, tokens[1:] + [9])):
        session = pool.registration.session(id, salt)
        session.tokens(ids)
        assert session.lookup().chunks == 0
        session.end()
    other = client.register("model", "uint8", pool.layout, engine="another engine 2.0")
    session = other.session("d")
    session.tokens(tokens)
    assert session.lookup().chunks == 0
    session.end()
    session.close()
    other.close()


def test_digests_are_the_golden_ones(pool: Pool) -> None:
    """pitfalls E03: C and Python agree with docs/PROTOCOL.md; scattered.16.* of tests/wire/digests.txt are of other
    tokens."""
    import hashlib

    tokens = [7 * i % 50000 for i in range(2 * CHUNK)]
    parent = hashlib.sha256(b"kvrail chunk chain v1").digest()
    want = b""
    for chunk in range(2):
        words = b"".join(token.to_bytes(4, "little") for token in tokens[chunk * CHUNK : (chunk + 1) * CHUNK])
        parent = hashlib.sha256(parent + words).digest()
        want += parent
    session = pool.registration.session("a")
    session.tokens(tokens)
    assert session.digests() == want
    other = pool.registration.session("b")
    other.set_digests(want[:32])
    other.tokens(tokens)
    assert other.digests() == want


def test_close_twice_is_harmless_and_everything_says_so_afterwards(server: Server) -> None:
    client = kvrail.Client(server.url)
    pool = Pool(client)
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    ticket = session.submit_lookup()
    client.close()
    client.close()
    session.close()
    pool.registration.close()
    pool.memory.close()
    assert client.closed and client.health == kvrail.FAILED
    with pytest.raises(kvrail.KvrailError) as caught:
        ticket.wait()
    assert caught.value.code == errno.ECONNRESET
    for call in (session.lookup, client.ping, client.info, lambda: client.alloc(1), lambda: pool.registration.session("b")):
        with pytest.raises(kvrail.KvrailError) as caught:
            call()
        assert caught.value.code == errno.EBADF


def test_handles_close_in_any_order_and_when_forgotten(server: Server) -> None:
    with kvrail.Client(server.url) as client:
        pool = Pool(client)
        with pool.registration.session("a") as session:
            session.tokens(range(CHUNK))
            session.store(0, 1, range(PER_CHUNK))
        session.close()
        with pytest.raises(kvrail.KvrailError) as caught:
            pool.memory.close()
        assert caught.value.code == errno.EBUSY and "unregister" in caught.value.text
        pool.registration.close()
        pool.registration.close()
        pool.memory.close()
        pool.memory.close()
        del session, pool
        gc.collect()
        client.ping()


def test_errors_have_a_code_a_name_and_words(tmp_path: object, client: kvrail.Client, pool: Pool) -> None:
    with pytest.raises(kvrail.KvrailError) as caught:
        kvrail.Client(f"unix:{tmp_path}/nobody.sock")
    assert caught.value.name == "ENOENT" and "nobody.sock" in str(caught.value)
    with pytest.raises(kvrail.KvrailError) as caught:
        pool.registration.session("x" * 129)
    assert caught.value.code == errno.EINVAL
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    assert session.lookup().chunks == 0
    with pytest.raises(kvrail.KvrailError) as caught:
        session.free_locks(0, 1)
    assert caught.value.code == errno.ENOLCK and caught.value.status != 0
    with pytest.raises(kvrail.KvrailError) as caught:
        session.store(0, 1, [0, 1, 2, Pool.BLOCKS])
    assert caught.value.code in (errno.ERANGE, errno.EINVAL, errno.EFAULT)
    with pytest.raises(ValueError):
        session.store(0, 1, [-1, 0, 1, 2])
    session.end()


def test_what_can_not_fit_into_the_cache_is_an_error_with_words(server: Server, client: kvrail.Client) -> None:
    memory = client.alloc(64 << 20)
    layout = kvrail.Layout([kvrail.Plane(memory.address, 1 << 20, 1 << 20)], PAGE, 64)
    registration = client.register("large", "uint8", layout)
    session = registration.session("a")
    session.tokens(range(16 * CHUNK))
    with pytest.raises(kvrail.KvrailError) as caught:
        session.store(0, 16, range(64))  # 64 MiB into 32
    assert caught.value.code == errno.ENOMEM and "no room" in caught.value.text
    assert session.store(0, 4, range(16)).outcomes == bytes([kvrail.STORED] * 4)
    session.end()


def test_many_tickets_are_in_flight_at_once(pool: Pool) -> None:
    sessions = []
    for i in range(20):
        session = pool.registration.session(f"s{i}")
        session.tokens([i * 1000 + n for n in range(CHUNK)])
        sessions.append(session)
    tickets = [session.submit_store(0, 1, range(PER_CHUNK)) for session in sessions]
    assert all(ticket.wait(10).chunks == 1 for ticket in tickets)
    tickets = [session.submit_lookup() for session in sessions]
    assert [ticket.wait(10).chunks for ticket in reversed(tickets)] == [1] * 20
    assert tickets[0].poll() == tickets[0].wait()  # a result may be asked for again
    tickets = [session.submit_end() for session in sessions]
    for ticket in tickets:
        ticket.wait(10)


def test_a_wait_ends_with_its_time_and_the_ticket_goes_on(server: Server, pool: Pool) -> None:
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    server.pause()
    try:
        ticket = session.submit_store(0, 1, range(PER_CHUNK))
        assert ticket.poll() is None and not ticket.done()
        with pytest.raises(kvrail.KvrailError) as caught:
            ticket.wait(0.02)
        assert caught.value.code == errno.ETIMEDOUT and caught.value.status == 0
        ticket.cancel()
        ticket.cancel()
    finally:
        server.resume()
    try:
        ticket.wait(10)
    except kvrail.KvrailError as error:
        assert error.code == errno.ECANCELED
    assert ticket.done()
    session.end()


def test_a_blocking_call_that_times_out_says_so(server: Server, pool: Pool) -> None:
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    server.pause()
    try:
        with pytest.raises(kvrail.KvrailError) as caught:
            session.lookup(timeout=0.02)
        assert caught.value.code == errno.ETIMEDOUT
    finally:
        server.resume()
    session.end()


def test_other_threads_run_while_one_waits(server: Server, pool: Pool) -> None:
    """The interpreter's lock is released: else this thread would go on only when the other has returned."""
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    server.pause()
    waiting = threading.Event()
    results: list[int] = []

    def wait() -> None:
        waiting.set()
        results.append(session.lookup(timeout=60).chunks)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        waiting.wait()
        for _ in range(100000):
            pass
        assert thread.is_alive() and not results
    finally:
        server.resume()
        thread.join()
    assert results == [0]
    session.end()


def test_threads_share_one_client(pool: Pool) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(30):
                with pool.registration.session(f"{number}-{i}") as session:
                    session.tokens([number * 100000 + n for n in range(2 * CHUNK)])
                    blocks = range(number * 8, number * 8 + 2 * PER_CHUNK)
                    session.store(0, 2, blocks)
                    assert session.lookup().chunks == 2
                    assert session.retrieve(0, 2, blocks).leading() == 2
                    session.end()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_close_waits_for_calls_of_other_threads(server: Server) -> None:
    client = kvrail.Client(server.url)
    pool = Pool(client)
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    server.pause()
    started = threading.Event()
    caught: list[kvrail.KvrailError] = []

    def wait() -> None:
        ticket = session.submit_lookup()
        started.set()
        try:
            ticket.wait()
        except kvrail.KvrailError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    closer = threading.Thread(target=client.close)
    closer.start()
    thread.join()
    server.resume()
    closer.join()
    assert caught and caught[0].code in (errno.EBADF, errno.ECONNRESET)


def test_a_session_that_another_thread_uses_is_not_closed_underneath(server: Server) -> None:
    client = kvrail.Client(server.url)
    session = Pool(client).registration.session("a")
    session.tokens(range(CHUNK))
    server.pause()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(session.lookup(60).chunks))
    thread.start()
    try:
        while session._gate.calls == 0:
            time.sleep(0.001)
        with pytest.raises(kvrail.KvrailError) as caught:
            session.close()
        assert caught.value.code == errno.EBUSY
    finally:
        server.resume()
    thread.join()
    assert found == [0]
    session.close()
    session.close()
    for call in (session.lookup, session.digests, session.end, lambda: session.tokens([1] * CHUNK)):
        with pytest.raises(kvrail.KvrailError) as caught:
            call()
        assert caught.value.code == errno.EBADF
    client.close()


def test_sessions_are_closed_by_one_thread_while_others_use_them(pool: Pool) -> None:
    """Every call ends well or says that the session was closed, or that it is in use."""
    wrong: list[BaseException] = []

    def use(session: kvrail.Session) -> None:
        try:
            for number in range(50):
                session.tokens([1] * CHUNK)
                session.digests()
                session.lookup()
                if number % 10 == 9:
                    session.close()
        except kvrail.KvrailError as error:
            if error.code not in (errno.EBADF, errno.EBUSY):
                wrong.append(error)
        except BaseException as error:
            wrong.append(error)

    for round in range(20):
        session = pool.registration.session(f"shared {round}")
        threads = [threading.Thread(target=use, args=(session,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.close()
    assert not wrong


@pytest.mark.parametrize("text, error", [("a\0b", ValueError), (5, TypeError), (b"a", TypeError), ("\udc80", UnicodeError)])
def test_a_text_that_c_would_cut_is_refused(pool: Pool, text: object, error: type[Exception]) -> None:
    """Two salts, ids or models never become one."""
    for call in (
        lambda: pool.registration.session(text),  # type: ignore[arg-type]
        lambda: pool.registration.session("a", text),  # type: ignore[arg-type]
        lambda: pool.client.register(text, "uint8", pool.layout),  # type: ignore[arg-type]
        lambda: kvrail.Client(text),  # type: ignore[arg-type]
    ):
        with pytest.raises(error):
            call()


def test_endless_times_are_times_too(pool: Pool) -> None:
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    for endless in (float("inf"), 1e300, 1e12):
        pool.client.ping(endless)
        assert session.lookup(endless).chunks == session.submit_lookup().wait(endless).chunks == 0
    for wrong in (float("nan"), "1"):
        with pytest.raises((ValueError, TypeError)):
            pool.client.ping(wrong)  # type: ignore[arg-type]
    for first, count in ((-1, 1), (0, 0), (0, -1)):
        with pytest.raises(ValueError):
            session.store(first, count, range(PER_CHUNK))


def test_tasks_await_tickets(pool: Pool) -> None:
    async def one(number: int) -> int:
        session = pool.registration.session(f"s{number}")
        session.tokens([number * 1000 + n for n in range(CHUNK)])
        assert (await session.submit_store(0, 1, range(4 * number, 4 * number + PER_CHUNK))).chunks == 1
        found = await session.submit_lookup()
        await session.submit_end()
        return found.chunks

    async def all_of_them() -> list[int]:
        return list(await asyncio.gather(*(one(number) for number in range(12))))

    assert asyncio.run(all_of_them()) == [1] * 12
    assert asyncio.run(all_of_them()) == [1] * 12  # another loop


def test_a_task_gets_the_error_of_its_request(pool: Pool) -> None:
    async def one() -> None:
        session = pool.registration.session("a")
        session.tokens(range(CHUNK))
        await session.submit_lookup()
        await session.submit_free_locks(0, 1)

    with pytest.raises(kvrail.KvrailError) as caught:
        asyncio.run(one())
    assert caught.value.code == errno.ENOLCK


def test_a_canceled_task_leaves_the_ticket(server: Server, pool: Pool) -> None:
    async def one() -> kvrail.Ticket:
        session = pool.registration.session("a")
        session.tokens(range(CHUNK))
        ticket = session.submit_store(0, 1, range(PER_CHUNK))

        async def wait() -> None:
            await ticket

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ticket

    server.pause()
    try:
        ticket = asyncio.run(one())
    finally:
        server.resume()
    assert ticket.wait(10).chunks == 1


def test_a_child_of_fork_is_refused_and_the_parent_goes_on(client: kvrail.Client, pool: Pool) -> None:
    session = pool.registration.session("a")
    session.tokens(range(CHUNK))
    ticket = session.submit_lookup()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for call in (session.lookup, client.ping, client.info, ticket.wait):
                try:
                    call()
                    os._exit(2)
                except kvrail.KvrailError as error:
                    if error.code != errno.ECHILD or "fork" not in error.text:
                        os._exit(3)
            session.close()
            client.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert ticket.wait(10).chunks == 0
    client.ping()
    session.end()


def test_the_client_comes_back_after_a_restart_of_the_server(server: Server, client: kvrail.Client, pool: Pool) -> None:
    tokens = list(range(CHUNK))
    stored(pool, "a", tokens)
    boot = client.info().boot_id
    server.kill()
    with pytest.raises(kvrail.KvrailError) as caught:
        client.ping()
    assert caught.value.code == errno.ECONNRESET
    server.start()
    for _ in range(1000):
        if client.health == kvrail.HEALTHY and client.info().boot_id != boot:
            break
        client.progress()
        time.sleep(0.01)
    session = pool.registration.session("b")
    session.tokens(tokens)
    assert session.lookup().chunks == 0  # a new server is empty
    session.end()
    assert stored(pool, "c", tokens) == 1


def test_clear_drops_what_is_not_in_use(client: kvrail.Client, pool: Pool) -> None:
    stored(pool, "a", list(range(2 * CHUNK)))
    assert client.clear(pool.registration).chunks == 2
    session = pool.registration.session("b")
    session.tokens(range(2 * CHUNK))
    assert session.lookup().chunks == 0
    session.end()


def test_layers_of_a_retrieve_are_waited_for_one_by_one(pool: Pool) -> None:
    for block in range(CHUNK // PAGE):
        pool.fill(block, 50 + block)
    with pool.registration.session("layers") as session:
        session.tokens(range(CHUNK))
        assert session.store(0, 1, range(CHUNK // PAGE)).complete
        ticket = session.submit_retrieve(0, 1, range(20, 20 + CHUNK // PAGE), layers=2)
        half = pool.BLOCKS * pool.BYTES
        for layer in range(2):
            ticket.wait_layer(layer, 20)
            at = layer * half + 20 * pool.BYTES
            assert pool.memory.view[at] == 50 and pool.memory.view[at + pool.BYTES] == 51
        with pytest.raises(kvrail.KvrailError) as caught:
            ticket.wait_layer(2, 20)
        assert caught.value.name == "ERANGE"
        assert ticket.wait(20).leading() == 1
        ticket.wait_layer(0)  # it is over: nothing to wait for
        session.end()


def test_a_wait_for_a_layer_ends_with_its_time_or_with_the_request(server: Server, pool: Pool) -> None:
    with pool.registration.session("never") as session:
        session.tokens(range(CHUNK))
        assert session.store(0, 1, range(CHUNK // PAGE)).complete
        ticket = session.submit_retrieve(0, 1, range(20, 20 + CHUNK // PAGE), layers=2, after=pool.client.mark())
        with pytest.raises(kvrail.KvrailError) as caught:
            ticket.wait_layer(0, 0.02)
        assert caught.value.name == "ETIMEDOUT" and not ticket.done()
        server.kill()
        with pytest.raises(kvrail.KvrailError) as caught:
            ticket.wait_layer(0, 20)
        assert caught.value.name == "ECONNRESET" and ticket.done()
    server.start()


def test_transfers_after_a_mark_wait_for_it(client: kvrail.Client, pool: Pool) -> None:
    mark = client.mark()
    with pool.registration.session("marks") as session:
        session.tokens(range(CHUNK))
        ticket = session.submit_store(0, 1, range(CHUNK // PAGE), after=mark)
        for _ in range(20):
            client.ping()
        assert not ticket.done()
        for block in range(CHUNK // PAGE):
            pool.fill(block, 90 + block)  # what the engine computes meanwhile
        mark.reach()
        assert ticket.wait(20).complete
        assert session.retrieve(0, 1, range(20, 20 + CHUNK // PAGE)).leading() == 1
        assert pool.page(21) == bytes([91]) * (2 * pool.BYTES)
        session.end()
    with pytest.raises(kvrail.KvrailError) as caught:
        kvrail.Mark(client, 12345678).reach()
    assert caught.value.name == "EINVAL"


def test_without_cuda_streams_are_refused_by_name(client: kvrail.Client) -> None:
    with pytest.raises(kvrail.KvrailError) as caught:
        client.mark().record(0)
    assert caught.value.code == errno.EOPNOTSUPP


def test_numpy_arrays_are_registered_as_they_are(client: kvrail.Client) -> None:
    numpy = pytest.importorskip("numpy")
    layers = [numpy.zeros((2, 8, PAGE, 2, 16), dtype=numpy.uint16) for _ in range(3)]
    layout = kvrail.Layout.from_tensors("NL_X_TWO_NB_BS_NH_HS", layers, PAGE)
    assert len(layout.planes) == 6 and layout.block_count == 8 and layout.block_bytes == 6 * PAGE * 2 * 16 * 2
    registration = client.register("numpy", "bfloat16", layout)
    session = registration.session("a")
    session.tokens(range(CHUNK))
    for layer in layers:
        layer[:, :4] = 7
    assert session.store(0, 1, range(4)).chunks == 1
    assert session.retrieve(0, 1, range(4, 8)).leading() == 1
    assert all((layer[:, 4:] == 7).all() for layer in layers)
    session.end()
    with pytest.raises(ValueError):
        kvrail.Layout.from_tensors("NO_SUCH", layers, PAGE)
    assert kvrail.extent(layers[0]).nbytes == layers[0].nbytes
    with pytest.raises(TypeError):
        kvrail.extent(object())


def test_objects_say_where_their_memory_is() -> None:
    class Tensor:
        shape = (4, 8)

        def data_ptr(self) -> int:
            return 4096

        def stride(self) -> tuple[int, int]:
            return (8, 1)

        def element_size(self) -> int:
            return 2

    class Cuda:
        __cuda_array_interface__ = {"data": (8192, False), "shape": (4, 8), "typestr": "<f2", "strides": (32, 2)}

    assert kvrail.extent(Tensor()) == (4096, (4, 8), (8, 1), 2)
    assert kvrail.extent(Cuda()) == (8192, (4, 8), (16, 1), 2)
    assert kvrail.extent(Cuda()).row_is_contiguous
    assert kvrail.address_of(17) == 17
    assert kvrail.extent(bytearray(12)).shape == (12,)
