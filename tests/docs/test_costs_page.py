"""The page about costs: its tables are read, and its figures are those of the code."""

import tomllib

from assay.experiment.helper_tables import URL, HelperSpec
from assay.experiment.price_table import SHIPPED, read_prices
from assay.experiment.read_file import read_experiment
from tests.docs.pages import blocks


def test_the_tables_of_the_page_are_read(tmp_path, monkeypatch):
    priced, table, bounded, two = blocks("costs.md", "toml")
    monkeypatch.setenv(URL, "http://127.0.0.1:8000/v1")
    file = tmp_path / "two.toml"
    file.write_text(f'name = "e"\ntask = "workflows"\n{two}')
    executor = read_experiment(file).helpers["executor"]
    assert executor.source == "openai:gpt-4o-mini" and executor.concurrency == 32
    tables = tomllib.loads(priced + bounded)["model"]["executor"]
    spec = HelperSpec.model_validate(tables)
    assert spec.budget is not None and spec.budget.run == 50.0
    file = tmp_path / "prices.toml"
    file.write_text(table)
    (entry,) = read_prices(file)
    shipped = next(each for each in read_prices(SHIPPED) if each.model == entry.model)
    assert (entry.price, entry.start) == (shipped.price, shipped.start)
