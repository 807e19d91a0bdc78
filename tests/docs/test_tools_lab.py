"""The page on the tools lab lists the experiments that ship."""

import shlex

from tests.docs.pages import DOCS, blocks
from tests.docs.test_tables import between
from tests.experiments.table import table


def test_the_table_of_the_tools_lab_is_what_the_files_say() -> None:
    assert between("tools-lab.md", "<!-- python -m tests.experiments.table -->") == table()


def test_the_commands_of_the_tools_lab_name_files_that_exist() -> None:
    lines = "".join(blocks("tools-lab.md", "sh")).splitlines()
    named = [word for line in lines for word in shlex.split(line) if word.endswith(".toml")]
    assert named and all((DOCS.parent / name).is_file() for name in named)
