"""Help answers at once, because nothing heavy is imported for it, and fits on a screen."""

import pytest
import typer

from assay.cli.main import GROUPS, OF_RUNS, OLD_VERBS, app
from assay.cli.output import name_of
from tests.cli.conftest import answer, assert_one_line, call, run_code, spawn

HEAVY = ("torch", "transformers", "numpy", "pyarrow", "scipy", "matplotlib")
LISTED = [name_of(function) for verbs in GROUPS.values() for function in verbs]
PAGES = [*([verb] for verb in LISTED), *(["runs", name_of(verb)] for verb in OF_RUNS)]


def test_every_help_page_names_the_common_options_and_loads_nothing_heavy():
    code = f"""
import sys
from typer.testing import CliRunner
from assay.cli.main import app
for words in [[], *{PAGES!r}]:
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0 and "--lab" in done.stdout and "--json" in done.stdout
assert not [m for m in {HEAVY!r} if m in sys.modules], "heavy"
"""
    done = run_code(code)
    assert done.returncode == 0, done.stderr


def test_the_help_page_fits_on_a_screen_and_lists_every_verb_whole_in_its_group():
    lines = call("--help").stdout.splitlines()
    assert len(LISTED) <= 24 and len(lines) <= 30 and max(map(len, lines)) <= 80
    shown = [line.split() for line in lines if line[9:10].strip()][2:]
    firsts = {words[0]: words[1] for words in shown if words[0] in GROUPS}
    assert firsts == {group: name_of(verbs[0]) for group, verbs in GROUPS.items()}
    assert all(any(verb in words[:2] for words in shown) for verb in LISTED)
    assert not any("..." in line for line in lines[3:])
    assert call("train").exit_code == 2


def test_every_option_says_what_it_does_and_no_flag_has_a_second_form():
    verbs = typer.main.get_command(app).commands
    commands = [each for each in verbs.values() if not each.hidden]
    options = [o for each in (*commands, *verbs["runs"].commands.values()) for o in each.params]
    assert [o.name for o in options if not o.help] == []
    assert [o.name for o in options if o.secondary_opts] == ["higher_is_better"]


@pytest.mark.parametrize("verb", sorted(OLD_VERBS))
def test_an_old_verb_answers_with_the_one_that_took_its_place(verb: str):
    for words in ((), ("tiny", "--why", "x"), ("--help",)):
        assert_one_line(call(verb, *words), f"'assay {verb}' is gone", OLD_VERBS[verb])
    (found,) = answer(call(verb, "tiny", "--json"))["findings"]
    assert OLD_VERBS[verb] in found["what"]


def test_version_is_printed_by_the_installed_command():
    assert spawn("--version").stdout.startswith("assay 0.")
