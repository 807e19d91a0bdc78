"""The page on the tools lab names experiments that ship."""

import shlex

from tests.docs.pages import DOCS, blocks


def test_the_commands_of_the_tools_lab_name_files_that_exist() -> None:
    lines = "".join(blocks("tools-lab.md", "sh")).splitlines()
    named = [word for line in lines for word in shlex.split(line) if word.endswith(".toml")]
    found = [list(DOCS.parent.glob(name)) for name in named]
    assert named and all(found)
