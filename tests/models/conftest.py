"""A fixture that saves tiny models as folders."""

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from tests.models.folders import tiny_tokenizer

SaveModel = Callable[..., Path]


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """Saves a model with the tiny tokenizer and returns the folder."""

    def save(model: PreTrainedModel, name: str = "model", **options: object) -> Path:
        folder = tmp_path / name
        model.save_pretrained(folder, **options)  # type: ignore[arg-type]
        tiny_tokenizer().save_pretrained(folder)
        return folder

    return save
