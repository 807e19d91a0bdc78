"""Checks the judges of an experiment before they are trusted: whether anybody holds them to labels,
and what that asks of them."""

from assay.errors import Finding, InputError
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.evaluate.judge_labels import read_labels, rubrics_in


def judges(subject: Subject) -> Seen:
    """The rubrics of stages and evaluations."""
    for use in rubrics_in(subject.session):
        name, file = use.kind, use.opened.labels
        if file is None:
            yield Finding(
                "warning",
                f"{name}: nobody knows whether people agree with the judge",
                "the rubric names no labels; its scores pass no gate",
                "let people label some answers: labels = FILE in the rubric",
            )
            continue
        try:
            found = read_labels(file, use.opened.rubric)
        except InputError as wrong:
            yield Finding("error", f"{name}: labels cannot be read", str(wrong), "mend the file")
            continue
        yield Number(name, "labelled answers", len(found))
        questions = 2 if use.opened.rubric.both_orders else 1
        yield Number(name, "questions about them", len(found) * questions)
