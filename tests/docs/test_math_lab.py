"""The page on the math lab lists the experiments that ship, and its number is computed."""

import re
import shlex

from assay.judge.averages import harmonic_ratio
from tests.docs.pages import DOCS, blocks

TEXT = (DOCS / "math-lab.md").read_text(encoding="utf-8")
FILES = sorted((DOCS.parent / "experiments" / "math").glob("*.toml"))


def test_the_page_lists_every_experiment_that_is_no_part_of_the_ladder() -> None:
    linked = set(re.findall(r"\(\.\./experiments/math/([\w-]+)\.toml\)", TEXT))
    assert linked == {file.stem for file in FILES} - {"ladder"}


def test_the_commands_of_the_math_lab_name_files_that_exist() -> None:
    lines = "".join(blocks("math-lab.md", "sh")).splitlines()
    named = [word for line in lines for word in shlex.split(line) if word.endswith(".toml")]
    assert named and all((DOCS.parent / name).is_file() for name in named)


def test_the_score_of_the_page_comes_out_of_its_counts() -> None:
    counts = [(16, 40), (933, 1319), (206, 500), (73, 675)]
    score = harmonic_ratio(counts, [0.30, 0.716, 0.44, 0.096])
    assert str(score) in TEXT
