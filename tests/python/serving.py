"""A kvraild for tests, and memory whose bytes are easily told apart. $KVRAIL_PROGRAMS is the folder of kvraild
(build/release/bin)."""
from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Optional

import kvrail

ROOT = Path(__file__).resolve().parent.parent.parent
CHUNK = 16
PAGE = 4


class Server:
    """kvraild on a Unix socket of its own. restart() is a crash and a new start: the cache is empty then."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.url = f"unix:{folder}/kvrail.sock"
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.start()

    def start(self) -> None:
        programs = Path(os.environ.get("KVRAIL_PROGRAMS", ROOT / "build" / "release" / "bin"))
        with open(self.folder / "kvraild.log", "ab") as log:
            self.process = subprocess.Popen(
                [programs / "kvraild", "--socket", f"{self.folder}/kvrail.sock", "--http", "off", *self.options],
                stderr=log,
                stdout=log,
            )
        for _ in range(1000):
            try:
                kvrail.Client(self.url).close()
                return
            except kvrail.KvrailError:
                if self.process.poll() is not None:
                    raise RuntimeError((self.folder / "kvraild.log").read_text()) from None
                time.sleep(0.01)
        raise RuntimeError("kvraild does not answer")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # all of its threads have stopped

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def make_sure(self) -> None:
        """It runs, and is empty."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.start()
        self.process.send_signal(signal.SIGCONT)
        with kvrail.Client(self.url) as client:
            client.clear()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is not None:
            return self.process.returncode
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(timeout=20)


class Pool:
    """Paged memory of two planes whose bytes are easily told apart."""

    BLOCKS = 64
    BYTES = 512

    def __init__(self, client: kvrail.Client, **model: object) -> None:
        self.client = client
        self.memory = client.alloc(2 * self.BLOCKS * self.BYTES)
        half = self.BLOCKS * self.BYTES
        planes = [kvrail.Plane(self.memory.address + i * half, self.BYTES, self.BYTES) for i in range(2)]
        self.layout = kvrail.Layout(planes, PAGE, self.BLOCKS)
        self.registration = client.register("model", "uint8", self.layout, **model)  # type: ignore[arg-type]

    def page(self, block: int) -> bytes:
        half = self.BLOCKS * self.BYTES
        view = self.memory.view
        return b"".join(bytes(view[i * half + block * self.BYTES : i * half + (block + 1) * self.BYTES]) for i in range(2))

    def fill(self, block: int, value: int) -> None:
        half = self.BLOCKS * self.BYTES
        for i in range(2):
            self.memory.view[i * half + block * self.BYTES : i * half + (block + 1) * self.BYTES] = bytes([value]) * self.BYTES
