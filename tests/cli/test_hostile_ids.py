"""Ids of rows that would steer a terminal are shown as what they are, on screens and on pages."""

import json
from pathlib import Path

from tests.cli.conftest import TinyLab, call

STEERING = "\x1b[31m\x07\x9b2J\u202e\x00"


def poison(file: Path) -> None:
    """Give every row an id that turns a terminal red, rings, clears it and writes backwards."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    lines = [json.dumps({**row, "id": f"{STEERING}\n{row['id']}"}) for row in rows]
    file.write_text("".join(f"{line}\n" for line in lines))


def assert_harmless(text: str) -> None:
    assert not set(text) & set(STEERING.replace("[31m", "").replace("2J", ""))


def test_ids_of_rows_steer_neither_terminal_nor_page(lab: TinyLab) -> None:
    lab.shrink()
    for name in ("sums.jsonl", "test.jsonl"):
        poison(lab.root / name)
    short = lab.file.read_text().replace("checkpoint_every = 8\n", "")
    lab.file.write_text(short.replace("steps  = 40", "steps  = 1"))
    for arguments, code in (
        (("check", lab.file), 0),
        (("run", lab.file, "--set", "stage.rl.steps=1"), 0),
        (("show", "tiny:test/base/absent"), 2),
        (("compare", "tiny@base", "tiny@rl.last"), 0),
    ):
        result = call(*arguments, "--lab", lab.root)
        assert result.exit_code == code, result.stderr
        assert_harmless(result.stdout + result.stderr)
    pages = [*lab.root.rglob("*.html")]
    assert len(pages) == 2
    assert any("1+1" in page.read_text() for page in pages)
    for page in pages:
        assert_harmless(page.read_text())
