"""What goes wrong: one exception, with a code and words."""
from __future__ import annotations

import errno
import os


class KvrailError(Exception):
    """A call on the cache failed.

    code: a positive errno number, as errno.ECONNRESET. text: the library's or the server's words.
    status: the server's code (docs/PROTOCOL.md, section 6), 0 when the library itself says no.
    """

    def __init__(self, code: int, text: str = "", status: int = 0) -> None:
        self.code = code
        self.text = text or os.strerror(code)
        self.status = status
        super().__init__(f"{self.text} ({self.name})")

    @property
    def name(self) -> str:
        """The code's name, as "ECONNRESET"."""
        return errno.errorcode.get(self.code, str(self.code))
