"""Generated questions have the answers that they ask for, by BFCL's own checker."""

import random
import re
from dataclasses import replace

import pytest

from assay.data.leakage import separate
from assay.data.row import Row, ToolCall
from assay.errors import InputError
from assay.tasks.tools.checker import ast_check
from assay.tasks.tools.drawing import Draw, Names, tables
from assay.tasks.tools.generated_calls import (
    draw_float,
    draw_integer,
    draw_string,
    first_sentence,
    functions,
    question,
    read_generated_calls,
    read_held_out_calls,
    spoken,
)
from assay.tasks.tools.multi_turn import HINT
from assay.tasks.tools.single_turn import entries


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    return read_generated_calls("400").rows


def drawn_from(seed: int) -> Names:
    """What questions are made of, from a stream of choices of its own."""
    return Names(Draw(random.Random(seed), "train"), tables("calls")["values"], {})


def call_of(row: Row) -> ToolCall:
    (call,) = row.messages[-1].tool_calls
    return call


def named(row: Row) -> dict:
    """The arguments that the question names: those with one possible value."""
    (possible,) = row.gold[0].values()
    return {
        key: values[0] for key, values in possible.items() if len(values) == 1 and values != [""]
    }


def test_every_answer_passes_the_benchmarks_own_checker(rows):
    assert len(rows) == 400
    assert not read_generated_calls("400").dropped


def test_an_argument_that_the_question_names_may_not_be_left_out(rows):
    errors = set()
    for row in rows:
        call = call_of(row)
        for key in named(row):
            rest = {name: value for name, value in call.arguments.items() if name != key}
            verdict = ast_check(row, [replace(call, arguments=rest)])
            assert not verdict.valid
            errors.add(verdict.error_type)
    assert {error.rpartition(":")[2] for error in errors} == {
        "missing_required",
        "missing_optional",
    }


def test_what_the_question_does_not_name_may_be_left_out(rows):
    for row in rows:
        call = call_of(row)
        assert dict(call.arguments) == named(row), row.id


def test_texts_and_choices_stand_in_the_question_as_they_are_to_be_copied(rows):
    copied = 0
    for row in rows:
        for key, value in named(row).items():
            if isinstance(value, str) and "date" not in key.lower():
                assert value in row.messages[0].content, row.id
                copied += 1
    assert copied > 200


def test_training_held_out_and_the_test_share_no_function_and_no_question(rows):
    names = [{doc["name"] for doc in functions(side)} for side in ("train", "held_out")]
    test = {doc["name"] for row in entries("simple_python") for doc in row.tools}
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & test
    assert min(map(len, names)) > 100
    held_out = read_held_out_calls("150").rows
    assert separate(rows, [*entries("simple_python"), *held_out]).rows == rows


def test_a_rate_said_in_percent_is_a_fraction_unless_the_function_asks_for_percent():
    for seed in range(50):
        value = draw_float(drawn_from(seed), "interest_rate", {"description": "Rate, yearly."})
        assert value.words.endswith("%")
        assert value.value == pytest.approx(float(value.words[:-1]) / 100)
        percent = draw_float(drawn_from(seed), "rate", {"description": "Rate in percent."})
        assert float(percent.words) == percent.value


def test_numbers_with_separators_and_as_words_mean_the_number():
    words = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
    words |= {"nine": 9, "ten": 10}
    seen = set()
    for seed in range(300):
        drawn = draw_integer(drawn_from(seed), "count", {})
        spelled = words.get(drawn.words)
        assert (spelled or int(drawn.words.replace(",", ""))) == drawn.value
        seen.add("word" if spelled else "separator" if "," in drawn.words else "digits")
    assert seen == {"word", "separator", "digits"}


def test_dates_are_converted_to_the_format_that_the_function_asks_for():
    for seed in range(50):
        drawn = draw_string(drawn_from(seed), "start_date", {"description": "as YYYY-MM-DD"})
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", drawn.value)
        if drawn.words != drawn.value:
            month, day, year = drawn.words.replace(",", "").split()
            assert (year, int(day)) == (drawn.value[:4], int(drawn.value[-2:]))
            assert month.isalpha()


def test_a_question_speaks_of_the_task_without_the_language_hint():
    assert first_sentence("Adds two numbers" + HINT) == "Adds two numbers"
    assert first_sentence("Reads v1.2 files. Slow." + HINT) == "Reads v1.2 files"
    assert spoken("startDate") == spoken("start_date") == "start date"
    assert question(drawn_from(0), {"description": "Say hello." + HINT}, {}) == "Say hello."


@pytest.mark.parametrize("count", ["", "0", "-1", "many", "1e3", "99999999999"])
def test_a_count_that_is_none_is_refused_with_how_to_write_it(count):
    with pytest.raises(InputError, match="number of questions"):
        read_generated_calls(count)
