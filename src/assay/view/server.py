"""Shows labs until it is stopped: `assay view`."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.serve.connections import (
    HOST,
    TOKEN,
    answering,
    is_loopback,
    token_for_clients,
    until_stopped,
)
from assay.view.app import application
from assay.view.window import Window, named_labs

BEHIND = 10
"""How far the window stands behind what trains on the same processors."""


def view(
    roots: Sequence[Path],
    *,
    host: str = HOST,
    port: int,
    token_file: Path | None,
    lang: str,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Show the labs at an address until SIGINT or SIGTERM; returns what was shown.

    Raises InputError for what is not there, and where other machines can reach the address and
    nobody chose a token.
    """
    labs = named_labs(roots)
    token, made = token_for_clients(host, token_file)
    os.nice(BEHIND)
    with until_stopped() as stop:
        window = Window(labs)
        with answering(application(window, token, host, lang), port, host) as taken:
            named = f"[{host}]" if ":" in host else host
            url = f"http://{named}:{taken}/"
            for name, root in labs.items():
                note(f"lab {name}: {root}")
            if not is_loopback(host):
                note("other machines can reach it; what is sent is not encrypted")
            note(f"open {url}?token={token}" if made else f"open {url}?token=… ({TOKEN})")
            stop.wait()
            note("stopping")
            window.closing.set()
    return {"url": url, "labs": labs}
