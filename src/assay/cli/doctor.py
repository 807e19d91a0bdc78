"""`assay doctor`: shows what this machine has, what it lacks and how to fix it. Changes nothing."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from assay.cli.output import Outcome

STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow"}


def doctor(root: Path) -> Outcome:
    """Look at Python, packages, device, isolation, caches, disk and memory."""
    from assay.lab.check.machine import examine

    checks = examine(root)
    table = Table("", "", "found", "what to do")
    for check in checks:
        state = Text(check.state, style=STYLES[check.state])
        table.add_row(state, check.name, check.found, check.mend)
    missing = any(check.state == "missing" for check in checks)
    return Outcome({"checks": checks}, [table], exit_code=1 if missing else 0)
