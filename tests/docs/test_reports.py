"""The page on the five reports names experiments that ship."""

import shlex

from tests.docs.pages import DOCS, blocks


def test_the_commands_of_the_page_name_files_that_exist() -> None:
    lines = "".join(blocks("reports.md", "sh")).replace("\\\n", "").splitlines()
    named = [word for line in lines for word in shlex.split(line, comments=True) if ".toml" in word]
    assert len(named) > 10 and all((DOCS.parent / name).is_file() for name in named)
