"""The skill of docs/episodes.md in a lab of the smallest kind."""

from pathlib import Path

from tests.docs.pages import blocks
from tests.models.folders import tiny_model, tiny_tokenizer

MODULE = "lengths_of_the_manual"


def make_lengths_lab(folder: Path) -> Path:
    """Fill `folder`, which is to be the lab's root, the skill's module too; the experiment file."""
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (code,) = blocks("episodes.md", "python")
    (folder / f"{MODULE}.py").write_text(code, encoding="utf-8")
    file = folder / "lengths.toml"
    text = blocks("episodes.md", "toml")[0].replace('"auto"', '"path:model"')
    file.write_text(text, encoding="utf-8")
    return file
