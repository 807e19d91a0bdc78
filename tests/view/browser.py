"""Chromium, driven over its debugging pipe: no package, no port, no driver of its own."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FIX = "no Chromium here: apt-get install chromium"
KEYS = {"Enter": ("Enter", 13, "\r")}
PATIENCE = 120
"""Seconds; a loaded machine is slow."""


def chromium() -> str | None:
    """The program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page of the browser: what it shows, and every error that it reported."""

    def __init__(self, reading: int, writing: int):
        self.reading, self.writing = reading, writing
        self.waiting = b""
        self.count, self.session = 0, ""
        self.errors: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command; events that come before it are looked through."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            got = self.message()
            if got.get("id") == self.count:
                assert "error" not in got, got
                return got["result"]
            self.notice(got)

    def message(self) -> dict[str, Any]:
        """The next message of the browser."""
        while b"\0" not in self.waiting:
            piece = os.read(self.reading, 1 << 16)
            assert piece, "the browser ended"
            self.waiting += piece
        text, _, self.waiting = self.waiting.partition(b"\0")
        return json.loads(text)

    def notice(self, event: dict[str, Any]) -> None:
        """Keep what an event reports as an error."""
        kind, told = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"])[:500])
        if kind == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url')}")
        if kind == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(json.dumps(told["args"])[:500])

    def open(self, url: str) -> None:
        """Go to an address, and wait until it is there."""
        self.script("window.left = true")
        self.ask("Page.navigate", url=url)
        self.loaded()

    def loaded(self) -> None:
        """Wait for another document than the one that was left."""
        self.until("!window.left && document.readyState === 'complete'")

    def script(self, text: str) -> Any:
        """The value of an expression in the page."""
        asked = {"expression": text, "awaitPromise": True, "returnByValue": True}
        return self.ask("Runtime.evaluate", **asked)["result"].get("value")

    def until(self, text: str) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := self.script(text):
                return found
            time.sleep(0.1)
        raise AssertionError(f"not within {PATIENCE} s: {text}; {self.text('body')}")

    def press(self, *keys: str) -> None:
        """Keys, one after the other."""
        for key in keys:
            own = (f"Key{key.upper()}", ord(key.upper()[0]), key)
            code, number, text = KEYS.get(key, own)
            event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
            down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
            self.ask("Input.dispatchKeyEvent", **event, **down)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def follow(self, *keys: str) -> None:
        """Keys that lead to another page."""
        self.script("window.left = true")
        self.press(*keys)
        self.loaded()

    def text(self, selector: str = "main") -> str:
        """The text that a reader sees of an element."""
        return self.script(f"document.querySelector({selector!r})?.innerText ?? ''")

    def count_of(self, selector: str) -> int:
        """How many elements there are."""
        return self.script(f"document.querySelectorAll({selector!r}).length")

    def screen(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window, and its colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])


@contextmanager
def opened(profile: Path) -> Iterator[Tab]:
    """A browser with one empty page."""
    command = [chromium() or "", "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    (read, to_browser), (from_browser, write) = os.pipe(), os.pipe()
    # The browser reads at descriptor 3 and writes at 4, which only a shell can give it by number.
    start = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', *command[:1], *command]
    process = subprocess.Popen(start, pass_fds=(read, write), stderr=subprocess.DEVNULL)
    os.close(read)
    os.close(write)
    try:
        yield Tab(from_browser, to_browser)
    finally:
        process.terminate()
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
