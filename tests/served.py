"""A server on this machine for pages that need one: they start workers, or fetch what lies beside them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def served(folder: Path, files: dict[str, bytes]) -> Iterator[str]:
    """The address of a server for a folder and ``files`` by their path."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in files:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Length", str(len(files[self.path])))
            self.end_headers()
            self.wfile.write(files[self.path])
            return None

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", "*")  # a viewer's frames have origins of their own
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
