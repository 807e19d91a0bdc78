"""The table of other-tools.md names every reader, and its plain table is one."""

import re
from pathlib import Path

from assay.data.results.readers import READERS, read_results
from tests.docs.pages import DOCS, blocks


def test_every_format_stands_in_the_table_and_no_other() -> None:
    text = (DOCS / "other-tools.md").read_text(encoding="utf-8")
    (table,) = (block for block in text.split("\n\n") if "| `lm-eval` |" in block)
    named = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert list(dict.fromkeys(named)) == list(READERS)


def test_the_plain_table_of_the_page_is_read(tmp_path: Path) -> None:
    (table,) = blocks("other-tools.md", "csv")
    file = tmp_path / "results.csv"
    file.write_text(table, encoding="utf-8")
    scores = {r.run: [a.score for a in r.answers] for r in read_results(file)}
    assert scores == {"base": [0.0, 1.0], "tuned": [1.0, 1.0]}
