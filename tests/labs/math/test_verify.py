"""math-verify's own verdicts, as the judge asks for them, agree with its own cases."""

from pathlib import Path

from assay.labs.math.sentences import delimited
from tests.json_lines import json_lines
from tests.labs.math.many import in_one_call

OTHERWISE = {
    "mv0133": "the case asks for a precision of 2 digits",
    "mv0127": "the case asks for a precision of 2 digits",
    "mv0028": "the case reads LaTeX alone; an answer may be a plain number too",
}
NOT_READ = {"-1 + sqrt(3)", "\\beginboxed{8\\sqrt{6}}"}
"""A function written as plain text, and a misspelt command that nobody repairs."""


def verdicts(pairs: list[tuple[str, str]]) -> list[bool]:
    calls = [{"gold": gold, "answer": answer} for gold, answer in pairs]
    return [bool(value and value["equal"]) for value in in_one_call("own", calls)]


def test_math_verifys_cases_have_the_stated_verdict(shared: Path) -> None:
    rows = json_lines(shared / "data/oracle/math_verify_cases.jsonl")
    found = verdicts([(row["gold"], row["answer"]) for row in rows])
    wrong = {r["id"] for r, v in zip(rows, found, strict=True) if v != bool(r["verdict"])}
    assert len(rows) == 130 and wrong == set(OTHERWISE)


def test_inspect_cases_agree_but_for_those_that_no_latex_reader_reads(shared: Path) -> None:
    rows = json_lines(shared / "data/oracle/inspect_ai_math_cases.jsonl")
    found = verdicts([(delimited(row["target"]), delimited(row["output"])) for row in rows])
    pairs = zip(rows, found, strict=True)
    different = {row["output"] for row, v in pairs if v != (row["expected"] == "C")}
    assert len(rows) == 17 and different == NOT_READ


def test_a_comparison_that_breaks_off_is_no_verdict() -> None:
    pairs = [("$12:00$", "$13:00$"), ("$12:00$", "$12:00$")]
    found = in_one_call("own", [{"gold": gold, "answer": answer} for gold, answer in pairs])
    # The second is equal in its other reading, as text.
    assert [value and value["equal"] for value in found] == [None, True]
