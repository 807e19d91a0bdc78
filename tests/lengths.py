"""The skill of docs/episodes.md in a lab of the smallest kind."""

from pathlib import Path

from tests.docs.pages import EPISODES, blocks
from tests.tiny_labs import make_lab

MODULE = "lengths_of_the_manual"


def make_lengths_lab(folder: Path) -> Path:
    """Fill `folder`, which is to be the lab's root, the skill's module too; the experiment file."""
    code = EPISODES
    (folder / f"{MODULE}.py").write_text(code, encoding="utf-8")
    text = blocks("episodes.md", "toml")[0].replace('"auto"', '"path:model"')
    return make_lab(folder, text, file="lengths.toml", rows={})
