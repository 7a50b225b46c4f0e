"""Drives the installed Firefox over WebDriver BiDi, its remote protocol: JSON over a web socket.

playwright drives only its own build of Firefox; the tests need the one that users have. Five commands are enough.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import GUARD_SECONDS, wait_until

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

NAMES = ("firefox-esr", "firefox")
NONE = "no Firefox on PATH: install firefox or firefox-esr to test it"
LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")


def find() -> str | None:
    """The path of a Firefox; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """The only window of a running Firefox."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)
        self.send("session.new", capabilities={})
        self.context = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its result; events in between are dropped.

        Raises:
            RuntimeError: the browser refuses the command.
        """
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=GUARD_SECONDS))
            if message.get("id") != number:
                continue
            if message["type"] == "error":
                raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
            result: dict[str, Any] = message["result"]
            return result

    def open(self, address: str, width: int, height: int) -> None:
        self.send("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})
        self.send("browsingContext.navigate", context=self.context, url=address, wait="complete")

    def js(self, expression: str) -> Any:
        """The value of an expression, as JSON; promises are awaited."""
        result = self.send(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})) ?? 'null')()",
            target={"context": self.context},
            awaitPromise=True,
        )
        if result["type"] == "exception":
            raise RuntimeError(f"{expression}: {result['exceptionDetails']['text']}")
        return json.loads(result["result"]["value"])

    def until(self, expression: str) -> None:
        wait_until(lambda: self.js(expression), expression)

    def click(self, x: float, y: float) -> None:
        """A press and release of the mouse, in CSS pixels of the window."""
        actions = [
            {"type": "pointerMove", "x": round(x), "y": round(y)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self.send("input.performActions", context=self.context, actions=[mouse])

    def press(self, key: str) -> None:
        """A key, by the character that it types."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self.send("input.performActions", context=self.context, actions=[keyboard])


@contextmanager
def launched(binary: str) -> Iterator[Page]:
    """A headless Firefox with a profile of its own."""
    from websockets.sync.client import connect

    with tempfile.TemporaryDirectory(prefix="snapreport-firefox-", ignore_cleanup_errors=True) as profile:
        (Path(profile) / "user.js").write_text('user_pref("datareporting.policy.dataSubmissionEnabled", false);\n')
        command = [binary, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
        log = Path(profile) / "stderr.txt"
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            with connect(f"{_address(log)}/session", max_size=None, compression=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait(timeout=GUARD_SECONDS)


def _address(log: Path) -> str:
    """The address it listens on, which it prints after its start."""
    found = wait_until(lambda: LISTENING.search(log.read_text(encoding="utf-8", errors="replace")), "Firefox listens")
    return found[1]
