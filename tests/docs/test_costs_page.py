"""The page about costs: its tables are read."""

import tomllib

from assay.experiment.helper_tables import HelperSpec
from tests.docs.pages import blocks


def test_the_tables_of_the_page_are_read():
    tables = tomllib.loads("".join(blocks("costs.md", "toml")))["model"]["executor"]
    spec = HelperSpec.model_validate(tables)
    assert spec.budget is not None and spec.budget.run == 50.0
