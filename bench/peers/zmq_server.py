#!/usr/bin/python3
"""The server of peer_zmq.c in Python: what a server of this field that is written in Python does with the same messages.

usage: zmq_server.py ADDRESS     (Debian: python3-zmq, python3-msgpack)
"""
import array
import hashlib
import sys

import msgpack
import zmq

CHUNK_TOKENS = 256


def digests(tokens):
    parent = hashlib.sha256(b"kvrail chunk chain v1").digest()
    words = array.array("I", tokens).tobytes()
    out = []
    for at in range(0, len(words) // (4 * CHUNK_TOKENS) * 4 * CHUNK_TOKENS, 4 * CHUNK_TOKENS):
        parent = hashlib.sha256(parent + words[at : at + 4 * CHUNK_TOKENS]).digest()
        out.append(parent)
    return out


def main():
    values, learned = {}, set()
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(sys.argv[1])
    print("ready", flush=True)
    unpacker = {"max_bin_len": 1 << 30, "max_array_len": 1 << 24, "raw": False}
    while True:
        request = msgpack.unpackb(socket.recv(copy=False).buffer, **unpacker)
        op = request[0]
        if op == "set":
            values.update(zip(request[1], request[2]))
            reply = ["ok"]
        elif op == "get":
            reply = [values[name] for name in request[1]]
        elif op == "learn":
            learned.update(digests(request[1]))
            reply = [len(request[1]) // CHUNK_TOKENS]
        elif op == "lookup":
            found = len(request[2]) // CHUNK_TOKENS
            if request[1]:
                found = 0
                for digest in digests(request[2]):
                    if digest not in learned:
                        break
                    found += 1
            reply = [found]
        else:
            reply = ["ok"]
        socket.send(msgpack.packb(reply), copy=False)


if __name__ == "__main__":
    main()
