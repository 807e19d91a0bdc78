"""Tables in the manual are what the code gives, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
from benchmarks.families import COMPOSITES, FAMILIES, config_of
from benchmarks.memory import table

from assay.models.supported import text_config, why_plain
from assay.rl.advantages import ADVANTAGES
from assay.rl.aggregation import AGGREGATIONS
from assay.rl.kl import CORRECTED, KL_ESTIMATORS, SEQUENCE_KL
from assay.rl.losses import LOSSES
from assay.rl.presets import PRESETS
from tests.docs.pages import DOCS

PAGES = sorted(DOCS.glob("*.md"))
EVERYWHERE = [*PAGES, *sorted(DOCS.parent.glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def between(page: str, start: str, end: str = "<!-- end -->") -> str:
    """The text of a page between two comments."""
    return (DOCS / page).read_text(encoding="utf-8").partition(start)[2].partition(end)[0].strip()


def test_the_page_names_every_preset() -> None:
    section = between("algorithms.md", "## GRPO and its relatives", "### ")
    assert set(PRESETS) <= set(re.findall(r"`(\w+)`", section))


def test_the_list_of_families_names_each_with_its_path() -> None:
    listed = between("models.md", "<!-- families -->").removeprefix("- ").split("\n- ")
    parts = [" ".join(line.split()).partition(": ") for line in listed]
    paths = {family: path for path, _, families in parts for family in families.split(", ")}
    assert sorted(paths) == sorted([*FAMILIES, *COMPOSITES])
    for family, path in paths.items():
        config = config_of(family)
        inner = text_config(config, Path(family)) if family in COMPOSITES else config
        packed = not why_plain(inner)
        assert packed == (path == "packed")


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("### Advantages", ADVANTAGES),
        ("### Policy losses", LOSSES),
        ("### Aggregations", AGGREGATIONS),
        ("### KL to the reference", {**KL_ESTIMATORS, CORRECTED: None, **SEQUENCE_KL}),
    ],
)
def test_every_registered_name_stands_in_its_table_and_no_other(section: str, names: dict) -> None:
    lines = between("algorithms.md", section + "\n", "\n#").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(names)


def test_the_memory_table_is_what_its_command_prints() -> None:
    start = "<!-- python -m benchmarks.memory table -->"
    assert between("machines.md", start) == table()


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_index_names_every_page() -> None:
    links = set(LINK.findall((DOCS / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in PAGES} - {"index.md"} <= links


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|benchmarks|experiments|docs)/[\w./-]+)`", text)
    examples = {"src/assay/tasks/tickets.py"}
    missing = [n for n in named if n not in examples and not (DOCS.parent / n).exists()]
    assert not missing
