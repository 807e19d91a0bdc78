"""The commands of select.md run on a run of two epochs, and its table reads what they write."""

import shlex
import tomllib
from pathlib import Path

from assay.experiment.data_tables import DataSpec
from tests.cli.conftest import call
from tests.docs.pages import blocks
from tests.lab.select.measured_lab import ROWS, measured_lab, shuffled_steps

PAGE = "select.md"


def test_every_command_of_the_page_selects_rows_that_its_table_takes(tmp_path: Path) -> None:
    shares = dict(zip(ROWS, ([0, 2], [2, 4], [1, 3], [1, 3]), strict=True))
    measured_lab(tmp_path, shuffled_steps(shares))
    written = []
    for command in blocks(PAGE, "sh")[0].splitlines():
        program, verb, *words = shlex.split(command)
        assert (program, verb) == ("assay", "select")
        result = call(verb, *words, "--lab", tmp_path)
        assert result.exit_code == 0, result.stderr
        written.append(f"selections/{words[-1]}.json")
        assert (tmp_path / written[-1]).is_file()
    table = tomllib.loads(blocks(PAGE, "toml")[0])["data"]["sums"]
    spec = DataSpec.model_validate(table)
    assert spec.take is not None and spec.take.selection in written
