"""Checks the judges of an experiment before they are trusted: whether anybody holds them to labels,
and what that asks of them."""

from assay.errors import Finding, InputError
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.evaluate.judge_labels import rubrics_in
from assay.tasks.label_file import read_labels
from assay.tasks.rubric import CANARIES


def judges(subject: Subject) -> Seen:
    """The rubrics of stages and evaluations."""
    for use in rubrics_in(subject.session):
        name, file = use.kind, use.opened.labels
        if file is None:
            yield Finding(
                "warning",
                f"{name}: nobody knows whether people agree with the judge",
                "the rubric names no labels; its scores stay uncorrected and pass no gate",
                "let people label some answers: labels = FILE in the rubric, or 'assay label'",
            )
            continue
        try:
            found = read_labels(file, use.rubric)
        except InputError as wrong:
            yield Finding("error", f"{name}: labels cannot be read", str(wrong), "mend the file")
            continue
        answers = len(found.labels)
        again = min(answers, use.opened.spec.canaries) * len(CANARIES)
        yield Number(name, "labelled answers", answers)
        yield Number(name, "questions about them", (answers + again) * (1 + use.rubric.pairs))
