"""Where keys stand in TOML, and experiments written back as TOML."""

import tomllib
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from assay.data.toml_text import key_lines, line_of
from assay.experiment.base_table import SpecTable
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml, inline
from tests.experiment.spec_texts import write_spec

TRICKY = '''\
# [not.a.table] = 1
a = "x = 1 # no comment"  # a comment
b = """
c = 1
"quoted" \\""" still inside
[d]
"""
e = \'\'\'
f = "\'\'\'
g.h . "i.j" = { k = 1, "l m" = [1, { n = 2 }] }
o = [
  1,  # one
  # two
  [2,
   3],
]
p = 1979-05-27 07:32:00
["q.r" . s]
t = \'\\\'
[[u]]
v = 1
[u.w]
x = 1
[[u]]
v = 2
'''

KEYS = st.text(min_size=0, max_size=6)
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


def test_every_key_of_a_tricky_text_has_its_line():
    assert key_lines(TRICKY) == {
        ("a",): 2,
        ("b",): 3,
        ("e",): 8,
        ("g",): 10,
        ("g", "h"): 10,
        ("g", "h", "i.j"): 10,
        ("g", "h", "i.j", "k"): 10,
        ("g", "h", "i.j", "l m"): 10,
        ("g", "h", "i.j", "l m", 0): 10,
        ("g", "h", "i.j", "l m", 1): 10,
        ("g", "h", "i.j", "l m", 1, "n"): 10,
        ("o",): 11,
        ("o", 0): 12,
        ("o", 1): 14,
        ("o", 1, 0): 14,
        ("o", 1, 1): 15,
        ("p",): 17,
        ("q.r",): 18,
        ("q.r", "s"): 18,
        ("q.r", "s", "t"): 19,
        ("u",): 20,
        ("u", 0): 20,
        ("u", 0, "v"): 21,
        ("u", 0, "w"): 22,
        ("u", 0, "w", "x"): 23,
        ("u", 1): 24,
        ("u", 1, "v"): 25,
    }


def test_a_key_that_is_not_written_has_the_line_of_the_table_around_it():
    lines = key_lines("[a.b]\nc = 1\n")
    assert line_of(("a", "b", "d", "e"), lines) == 1
    assert line_of(("x",), lines) is None


@given(st.lists(st.tuples(st.text(max_size=8), VALUES), max_size=5, unique_by=lambda p: p[0]))
def test_keys_are_found_on_the_lines_they_were_written_on(pairs):
    text = "".join(f"{inline({key: value})[2:-2]}\n" for key, value in pairs)
    assert list(tomllib.loads(text)) == [key for key, _ in pairs]
    lines = {path[0]: line for path, line in key_lines(text).items() if len(path) == 1}
    assert lines == {key: number for number, (key, _) in enumerate(pairs, 1)}


@given(VALUES)
def test_values_survive_writing_and_reading(value):
    read = tomllib.loads(f"value = {inline(value)}")["value"]
    assert read == value
    assert type(read) is type(value)


@given(
    seeds=st.lists(st.integers(0, 2**31), min_size=1, max_size=3),
    about=st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=30),
    lr=st.floats(1e-12, 10),
    sparse=st.booleans(),
)
def test_a_resolved_experiment_reads_back_as_itself(tmp_path_factory, seeds, about, lr, sparse):
    folder = tmp_path_factory.getbasetemp()
    options = "" if sparse else 'options = { "a b" = ["x"] }\n'
    changed = ('options = { parser = "strict" }\n', options)
    overrides = [f"seeds={seeds}", f"about={inline(about)}", f"stage.rl.optimizer.lr={lr!r}"]
    experiment = read_experiment(write_spec(folder, changed), overrides)
    resolved = folder / "resolved.toml"
    resolved.write_text(experiment_toml(experiment), encoding="utf-8")
    assert read_experiment(resolved) == experiment
    assert list(read_experiment(resolved).stage) == list(experiment.stage)


def test_the_resolved_file_holds_every_default(tmp_path):
    text = experiment_toml(read_experiment(write_spec(tmp_path)))
    written = tomllib.loads(text)
    assert written["stage"]["rl"]["kl"]["estimator"] == "k3"
    assert written["stage"]["sft"]["optimizer"]["lr"] == 1e-5
    assert written["stage"]["rl"]["start"] == "sft.best"
    assert written["evaluate"]["bfcl"]["sampling"]["temperature"] == 0.0


def all_tables(model: type[SpecTable] = Experiment) -> set[type[SpecTable]]:
    """Every model that can occur in an experiment file."""
    found = {model}
    open_types = [field.annotation for field in model.model_fields.values()]
    while open_types:
        kind = open_types.pop()
        open_types += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, SpecTable) and kind not in found:
            found |= all_tables(kind)
    return found


def test_what_may_be_omitted_is_omitted_by_default():
    """None is left out of the written file, so a key that takes None must default to it."""
    optional = [
        (model.__name__, name, field.default)
        for model in all_tables()
        for name, field in model.model_fields.items()
        if type(None) in get_args(field.annotation)
    ]
    assert len(optional) > 10
    assert [entry for entry in optional if entry[2] is not None] == []
