#!/usr/bin/env python3
"""The golden messages of version 1, made from docs/PROTOCOL.md with struct.pack and hashlib alone, without a line of src/.

usage: golden.py           compares with the .hex files, digests.txt and docs/PROTOCOL.md; exit code 1 when one differs
       golden.py --write   writes the files that are missing here and in ../fuzz/corpus/protocol; never changes one that is there
"""

import hashlib
import hmac
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "fuzz", "corpus", "protocol")
NULL_BLOCK = ALL = FULL = 0xFFFFFFFF

TYPES = {name: number for number, name in (
    (1, "HELLO"), (3, "AUTHENTICATE"), (5, "CONNECT"), (7, "MEMORY"), (9, "FORGET_MEMORY"), (11, "REGISTER"),
    (13, "UNREGISTER"), (31, "INDIRECT"), (33, "PING"), (35, "GET_INFO"), (37, "LOOKUP"), (39, "QUERY"), (41, "RETRIEVE"),
    (43, "STORE"), (45, "FREE_LOCKS"), (47, "CANCEL"), (49, "END_SESSION"), (51, "CLEAR"), (77, "NEWER"))}


def u16(value, what):
    return struct.pack("<H", value), f"u16 {what} = {value}"


def u32(value, what):
    return struct.pack("<I", value), f"u32 {what} = {value if value != ALL else 'UINT32_MAX'}"


def u64(value, what):
    return struct.pack("<Q", value), f"u64 {what} = {value:#x}"


def raw(data, what):
    return data, what


def text(value, what):
    data = value.encode()
    return struct.pack("<H", len(data)) + data, f"text {what} = {value!r}"


def fill(first, count=32):
    """Bytes that count up, so that a shifted copy shows."""
    return bytes((first + i) & 0xFF for i in range(count))


SEED = hashlib.sha256(b"kvrail chunk chain v1").digest()


def chain(parent, chunks):
    digests = []
    for tokens in chunks:
        parent = hashlib.sha256(parent + struct.pack(f"<{len(tokens)}I", *tokens)).digest()
        digests.append(parent)
    return digests


CHAIN = chain(SEED, [range(256), range(256, 512), range(512, 768)])
SALT = hashlib.sha256(b"salt of golden").digest()


def session_fixed(first, count, salt=SALT):
    return [u32(first, "session.first_chunk"), u32(count, "session.digest_count"), raw(salt, "session.salt")]


def session_rest(name, parent=None, digests=()):
    parts = [text(name, "session.id")]
    if parent:
        parts.append(raw(parent, "session.parent"))
        parts += [raw(digest, f"session.digests[{i}]") for i, digest in enumerate(digests)]
    return parts


def info(first):
    return [u32(1, "version"), u32(first + 1, "features"), u32(256, "chunk_tokens"), u32(4096, "chunks_max"),
            u32(2 << 20, "message_bytes_max"), u32(8192, "inline_bytes"), u32(first + 2, "credits"),
            u32(first + 3, "lock_seconds"), u64(first + 0x123456789A, "heartbeat_ns")]


def message(name, reply, fixed=(), rest=(), flags=0, status=0, request_id=0x1122334455667788, boot_id=0x99AABBCCDDEEFF01):
    fixed_length = 32 + sum(len(data) for data, _ in fixed)
    length = fixed_length + sum(len(data) for data, _ in rest)
    number = TYPES[name] + (1 if reply else 0)
    header = [raw(b"KVRL", "magic"), u32(length, "length"), u16(number, f"type: {name}{'_REPLY' if reply else ''}"),
              u16(fixed_length, "fixed_length"), u16(flags, "flags"), u16(status, "status"),
              u64(request_id, "request_id"), u64(boot_id, "boot_id")]
    return header, list(fixed), list(rest)


GOLDEN = {
    "hello": message("HELLO", False, [u16(1, "version_min"), u16(3, "version_max"), u32(3, "features"),
                                      u32(48, "want_credits")],
                     [text("local", "driver"), text("vllm worker 3", "client"), text("tenant-a", "tenant")], boot_id=0),
    "hello_reply_done": message("HELLO", True, [u32(0, "authentication")] + info(0x10),
                                [text("kvraild 0.1.0", "server"), text("tenant-a", "tenant")]),
    "hello_reply_challenge": message("HELLO", True, [u32(1, "authentication")] + info(0x20),
                                     [text("kvraild 0.1.0", "server"), text("", "tenant"), raw(fill(0x40), "challenge")]),
    "authenticate": message("AUTHENTICATE", False, [raw(fill(0x60), "nonce"), raw(fill(0x80), "proof")],
                            [text("team-a", "key")]),
    "authenticate_reply": message("AUTHENTICATE", True, info(0x30), [text("kvraild 0.1.0", "server"), text("tenant-a", "tenant")]),
    "connect": message("CONNECT", False, [u32(2, "rail"), u32(24, "address_length")], [raw(fill(0xA0, 24), "address")]),
    "connect_reply": message("CONNECT", True, [u32(15, "rail"), u32(0, "address_length")]),
    "memory_shared": message("MEMORY", False, [u64(0x7F0000001000, "address"), u64(0x40000000, "length"),
                                               u64(0x2000, "offset"), u32(1, "kind: MEMORY_SHARED"), u32(0, "device"),
                                               u32(0, "rkey_count"), u32(0, "handle_length")]),
    "memory_device": message("MEMORY", False, [u64(0x7F1000000000, "address"), u64(0x80000000, "length"), u64(0x200, "offset"),
                                               u32(3, "kind: MEMORY_DEVICE"), u32(5, "device"), u32(0, "rkey_count"),
                                               u32(64, "handle_length")], [raw(fill(0x11, 64), "handle")]),
    "memory_remote": message("MEMORY", False, [u64(0x7F2000000000, "address"), u64(0x100000, "length"), u64(0, "offset"),
                                               u32(4, "kind: MEMORY_REMOTE"), u32(1, "device"), u32(3, "rkey_count"),
                                               u32(0, "handle_length")],
                             [u32(0x1111, "rkeys[0]"), u32(0x2222, "rkeys[1]"), u32(0x3333, "rkeys[2]")]),
    "memory_reply": message("MEMORY", True, [u32(9, "region")]),
    "forget_memory": message("FORGET_MEMORY", False, [u32(9, "region")]),
    "forget_memory_reply": message("FORGET_MEMORY", True),
    "register": message("REGISTER", False, [raw(fill(0x31), "fingerprint"), u32(8, "world_size"), u32(5, "rank"),
                                            u32(4, "readers"), u32(3, "reader"), u32(2, "group_count"), u32(3, "plane_count")],
                        [text("llama3-8b@2", "model"), text("bfloat16", "dtype"),
                         u32(16, "groups[0].tokens_per_block"), u32(FULL, "groups[0].window_tokens"),
                         u32(1000, "groups[0].block_count"), u32(2, "groups[0].plane_count"),
                         u32(32, "groups[1].tokens_per_block"), u32(4096, "groups[1].window_tokens"),
                         u32(500, "groups[1].block_count"), u32(1, "groups[1].plane_count"),
                         u64(0x7F0000001000, "planes[0].address"), u64(0x8000, "planes[0].block_stride"),
                         u32(0x4000, "planes[0].block_bytes"), u32(9, "planes[0].region"),
                         u64(0x7F0000005000, "planes[1].address"), u64(0x8000, "planes[1].block_stride"),
                         u32(0x4000, "planes[1].block_bytes"), u32(10, "planes[1].region"),
                         u64(0x7F1000000000, "planes[2].address"), u64(0x10000, "planes[2].block_stride"),
                         u32(0x10000, "planes[2].block_bytes"), u32(11, "planes[2].region")]),
    "register_scheduler": message("REGISTER", False, [raw(fill(0x31), "fingerprint"), u32(8, "world_size"), u32(0, "rank"),
                                                      u32(1, "readers"), u32(0, "reader"), u32(0, "group_count"),
                                                      u32(0, "plane_count")],
                                  [text("llama3-8b@2", "model"), text("bfloat16", "dtype")]),
    "register_reply": message("REGISTER", True, [u64(0x2000000, "object_bytes"), u64(0x20000, "token_bytes"),
                                                 u32(7, "registration")]),
    "unregister": message("UNREGISTER", False, [u32(7, "registration")]),
    "unregister_reply": message("UNREGISTER", True),
    "indirect": message("INDIRECT", False, [u32(9, "region"), u32(131072, "length"), u64(0x7F0000001040, "address")]),
    "ping": message("PING", False),
    "ping_reply": message("PING", True),
    "get_info": message("GET_INFO", False),
    "get_info_reply": message("GET_INFO", True, info(0x50), [text("kvraild 0.1.0", "server"), text("tenant-b", "tenant")]),
    "lookup": message("LOOKUP", False, [u32(7, "registration"), u32(3, "chunk_count"), u64(2000000000, "deadline_ns")] +
                      session_fixed(0, 3), session_rest("session-1", SEED, CHAIN), flags=3),
    "lookup_named": message("LOOKUP", False, [u32(7, "registration"), u32(0, "chunk_count"), u64(0, "deadline_ns")] +
                            session_fixed(0, 0, bytes(32)), session_rest("s")),
    "lookup_reply": message("LOOKUP", True, [u32(3, "matched_chunks"), u32(1, "from_l2_chunks")]),
    "query": message("QUERY", False, [u32(7, "registration"), u64(1500000000, "timeout_ns")] + session_fixed(0, 0),
                     session_rest("session-1"), flags=1),
    "query_reply_pending": message("QUERY", True, [u32(2, "matched_chunks"), u32(2, "from_l2_chunks")], status=2),
    "retrieve": message("RETRIEVE", False, [u32(7, "registration"), u32(1, "first_chunk"), u32(2, "chunk_count"),
                                            u32(100, "skip_tokens"), u32(2, "group_count"), u32(3, "run_count")] +
                        session_fixed(1, 2), session_rest("session-1", CHAIN[0], CHAIN[1:]) +
                        [u32(2, "group_runs[0]"), u32(1, "group_runs[1]"),
                         u32(40, "runs[0].start"), u32(30, "runs[0].count"), u32(NULL_BLOCK, "runs[1].start: null blocks"),
                         u32(2, "runs[1].count"), u32(200, "runs[2].start"), u32(16, "runs[2].count")]),
    "retrieve_ordered": message("RETRIEVE", False, [u32(7, "registration"), u32(0, "first_chunk"), u32(1, "chunk_count"),
                                                    u32(0, "skip_tokens"), u32(1, "group_count"), u32(1, "run_count")] +
                                session_fixed(0, 0) +
                                [u64(0x7F0000002000, "layers_address"), u32(9, "layers_region"), u32(61, "layer_count"),
                                 u32(0x80000001, "layer_value"), u32(10, "after_region"), u64(0x7F0000003004, "after_address"),
                                 u32(0x1234, "after_value")], session_rest("session-1") +
                                [u32(1, "group_runs[0]"), u32(40, "runs[0].start"), u32(16, "runs[0].count")], flags=3),
    "store_after": message("STORE", False, [u32(7, "registration"), u32(0, "first_chunk"), u32(1, "chunk_count"),
                                            u32(0, "skip_tokens"), u32(1, "group_count"), u32(1, "run_count")] +
                           session_fixed(0, 0) +
                           [u64(0, "layers_address"), u32(0, "layers_region"), u32(0, "layer_count"), u32(0, "layer_value"),
                            u32(10, "after_region"), u64(0x7F0000003004, "after_address"), u32(0x1234, "after_value")],
                           session_rest("session-1") +
                           [u32(1, "group_runs[0]"), u32(40, "runs[0].start"), u32(16, "runs[0].count")], flags=2),
    "retrieve_reply_partial": message("RETRIEVE", True, [u32(4, "chunk_count"), u32(2, "good_count")],
                                      [raw(bytes((2, 1, 3, 7)), "outcomes: SKIPPED, DELIVERED, MISSING, FAILED")], status=1),
    "store": message("STORE", False, [u32(7, "registration"), u32(0, "first_chunk"), u32(1, "chunk_count"),
                                      u32(0, "skip_tokens"), u32(1, "group_count"), u32(1, "run_count")] +
                     session_fixed(0, 1), session_rest("session-2", SEED, CHAIN[:1]) +
                     [u32(1, "group_runs[0]"), u32(0xFFFFFFEF, "runs[0].start"), u32(16, "runs[0].count")]),
    "store_reply": message("STORE", True, [u32(2, "chunk_count"), u32(2, "good_count")],
                           [raw(bytes((4, 5)), "outcomes: STORED, PRESENT")]),
    "free_locks": message("FREE_LOCKS", False, [u32(7, "registration"), u32(1, "first_chunk"), u32(2, "chunk_count"),
                                                u32(5, "rank"), u32(3, "reader")] + session_fixed(0, 0),
                          session_rest("session-1")),
    "free_locks_all": message("FREE_LOCKS", False, [u32(7, "registration"), u32(0, "first_chunk"), u32(4096, "chunk_count"),
                                                    u32(ALL, "rank: WIRE_ALL_RANKS"), u32(0, "reader")] + session_fixed(0, 0),
                              session_rest("session-1")),
    "free_locks_reply": message("FREE_LOCKS", True, [u32(6, "count"), u32(0, "kept")]),
    "cancel": message("CANCEL", False, [u64(0x1122334455667701, "target")]),
    "cancel_reply": message("CANCEL", True),
    "end_session": message("END_SESSION", False, [u32(7, "registration")] + session_fixed(0, 0), session_rest("session-1")),
    "end_session_reply": message("END_SESSION", True),
    "clear": message("CLEAR", False, [u32(ALL, "registration: everything of the tenant")]),
    "clear_reply": message("CLEAR", True, [u32(1234, "count"), u32(56, "kept")]),
    "error_busy": message("LOOKUP", True, [], [text("the session table is full: retry in 100 ms", "text")], status=12),
    "error_unknown_type": message("NEWER", True, [], [text("", "text")], status=4),
}


def with_length(value):
    return struct.pack("<H", len(value)) + value.encode()


def model_key(tenant, model, dtype, fingerprint, world_size):
    return hashlib.sha256(b"kvrail model v1" + with_length(tenant) + with_length(model) + with_length(dtype) + fingerprint +
                          struct.pack("<I", world_size)).digest()


def proof(secret, key):
    data = b"kvrail authenticate v1" + fill(0x01) + fill(0x41) + key.encode()
    return hmac.new(secret, data, "sha256").digest()


def scattered(count):
    return [i * 2654435761 & 0xFFFFFFFF for i in range(count)]


def digests():
    tokens = scattered(64)
    lines = [("seed", SEED)]
    lines += [(f"counting.256.{i}", digest) for i, digest in enumerate(CHAIN)]
    lines += [(f"scattered.16.{i}", digest)
              for i, digest in enumerate(chain(SEED, [tokens[i:i + 16] for i in range(0, 64, 16)]))]
    lines += [("single.1.0", chain(SEED, [[0xFFFFFFFF]])[0]), ("zero-parent.256.0", chain(bytes(32), [range(256)])[0]),
              ("salt.none", bytes(32)), ("salt.golden", SALT),
              ("proof.short", proof(b"secret", "team-a")), ("proof.block", proof(fill(0, 64), "team-a")),
              ("proof.long", proof(fill(0, 100), "")),
              ("model.plain", model_key("", "llama3-8b", "bfloat16", fill(0x31), 1)),
              ("model.tenant", model_key("tenant-a", "llama3-8b", "bfloat16", fill(0x31), 1)),
              ("model.adapter", model_key("tenant-a", "llama3-8b@2", "bfloat16", fill(0x31), 1)),
              ("model.dtype", model_key("tenant-a", "llama3-8b", "fp8_e4m3", fill(0x31), 1)),
              ("model.fingerprint", model_key("tenant-a", "llama3-8b", "bfloat16", fill(0x32), 1)),
              ("model.world", model_key("tenant-a", "llama3-8b", "bfloat16", fill(0x31), 8)),
              ("model.moved", model_key("tenant-al", "lama3-8b", "bfloat16", fill(0x31), 1))]
    return "".join(f"{name:<18} {digest.hex()}\n" for name, digest in lines)


def as_hex(parts):
    header, fixed, rest = parts
    lines = []
    for data, what in header + fixed + rest:
        rows = [data[i:i + 32].hex() for i in range(0, len(data), 32)]
        lines.append(f"{rows[0]:<32} # {what}")
        lines += rows[1:]
    return "\n".join(lines) + "\n"


def as_bytes(parts):
    return b"".join(data for part in parts for data, _ in part)


def main():
    failed = 0
    path = os.path.join(HERE, "digests.txt")
    if "--write" in sys.argv and not os.path.exists(path):
        with open(path, "w", encoding="ascii") as file:
            file.write(digests())
    with open(path, encoding="ascii") as file:
        if file.read() != digests():
            print("digests.txt differs", file=sys.stderr)
            failed = 1
    with open(os.path.join(HERE, "..", "..", "docs", "PROTOCOL.md"), encoding="utf-8") as file:
        for documented in re.findall("`([0-9a-f]{64})`", file.read()):
            if documented not in digests():
                print(f"docs/PROTOCOL.md: {documented} is not a golden digest", file=sys.stderr)
                failed = 1
    for name, parts in GOLDEN.items():
        path = os.path.join(HERE, name + ".hex")
        seed = os.path.join(CORPUS, name)
        if "--write" in sys.argv:
            if not os.path.exists(path):
                with open(path, "w", encoding="ascii") as file:
                    file.write(as_hex(parts))
            if not os.path.exists(seed):
                with open(seed, "wb") as file:
                    file.write(as_bytes(parts))
        with open(path, encoding="ascii") as file:
            data = bytes.fromhex("".join(line.split("#")[0] for line in file))
        if data != as_bytes(parts):
            print(f"{name}: differs from its .hex file", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
