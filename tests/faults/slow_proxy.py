"""A server that becomes slow: a relay in front of a real one, which passes requests on at once and holds answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class SlowProxy:
    """Listens on a port of its own; `delay` is for how many seconds it holds back what the server says."""

    def __init__(self, target_port: int) -> None:
        self.delay = 0.0
        self.trickles = False
        """Whether an answer comes byte by byte, so that no pause between two bytes is long."""
        self.held = 0
        """How many pieces of answers were held back."""
        self._target = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no longer."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65536):
                if is_answer and self.delay:
                    self.held += 1
                    time.sleep(self.delay)
                if is_answer and self.trickles:
                    for byte in content:
                        sink.sendall(bytes([byte]))
                        time.sleep(0.5)
                sink.sendall(content)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
