"""The manual's page on the experiment file is the one that the models give."""

from pathlib import Path
from typing import Literal, get_args, get_origin

from assay.experiment.reference import OWN_SECTIONS, reference, tables_in
from tests.experiment.test_toml_write import all_tables

PAGE = Path(__file__).parents[2] / "docs" / "experiment.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "python -m assay.experiment.reference > docs/experiment.md"
    )


def test_every_key_is_explained():
    for model in all_tables():
        for name, field in model.model_fields.items():
            inner = any(table.__doc__ for table in tables_in(field))
            assert field.description or inner, f"{model.__name__}.{name}"


def test_every_key_is_on_the_page():
    page = reference()
    for model in all_tables():
        for name, field in model.model_fields.items():
            only = get_args(field.annotation)
            one = len(only) == 1 and get_origin(field.annotation) is Literal
            shown = f'`{name} = "{only[0]}"`' if one else f"- `{name}` ("
            assert name in OWN_SECTIONS or shown in page


def test_links_lead_to_headings():
    page = reference()
    for model in all_tables():
        link = f"(#{model.__name__.lower()})"
        assert (link in page) <= (f"### {model.__name__}\n" in page)


def test_the_page_has_types_limits_and_defaults():
    page = reference()
    assert "- `dual` (number>1): Bound on the ratio" in page
    assert '- `role` (`"select"`, `"report"`; required): ' in page
    assert "- `lr` (number>0,≤10; by method): " in page
    assert "- `reward` ([reward](rewards.md#tables); required): " in page
    assert "- `take` ([TakeRows](#takerows))\n" in page
