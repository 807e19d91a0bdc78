"""The page of known faults: each row names a test that is there and a message of the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "known-faults.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|")
][2:]
SOURCES = [*ROOT.glob("src/assay/**/*.py"), ROOT / "src/assay/pages/wording/en.toml"]
LITERALS = re.compile(r'"\s*(?:\+=?|what \+=)?\s*f?"')
"""Where a text goes on in the next literal."""


@pytest.fixture(scope="module")
def said() -> str:
    """All that the code says, its literals joined."""
    return LITERALS.sub("", "\n".join(file.read_text(encoding="utf-8") for file in SOURCES))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]}")
def test_every_fault_has_a_test_and_a_message_of_the_code(row: list[str], said: str) -> None:
    thread, reported, injected, says, when, test = row
    assert all((thread, reported, injected, says, when))
    file, _, name = test.strip("`").partition("::")
    assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8")
    for message in re.findall("`([^`]+)`", says):
        assert message in said, message
