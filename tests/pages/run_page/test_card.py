"""The model card says what the run recorded, in whole sentences."""

import re

import pytest

from assay.lab.run.merged_export import Exported
from assay.pages.card import model_card
from tests.pages.synthetic import Shape, demo_run


@pytest.mark.slow
def test_a_card_holds_sentences_and_no_notation_of_python(tmp_path):
    run = demo_run(tmp_path, Shape(items=20, steps=4, groups=2))
    made = Exported(run, "sft.step-000014", "bf16", "hermes", tmp_path, "0" * 64, "")
    for lang, checked in (("en", "Leakage check against"), ("zh", "泄漏检查")):
        card = model_card(made, lang)
        assert checked in card
        card = re.sub(r"```python.*?```", "", card, flags=re.DOTALL)
        assert not re.search(r"\('|',\)|\['|\b(?:None|True|False)\b", card)
