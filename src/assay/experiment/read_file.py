"""Reads an experiment, from its file or from plain values, with overrides, into frozen models.

Every problem becomes one line with file, line and dotted field. Names of registers are checked in
`lab.session.validate`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.data.toml_text import (
    KeyPath,
    key_lines,
    line_of,
    load_toml,
    unusable_values,
)
from assay.errors import InputError, nearest
from assay.experiment.experiment import Experiment, ExperimentOrigin
from assay.experiment.helper_tables import HELPERS, POLICY
from assay.experiment.overrides import (
    NAMED,
    Override,
    annotations_at,
    apply_overrides,
    parse_override,
    place,
)
from assay.experiment.problems import MISSING, UNKNOWN, Problem, problems_in
from assay.experiment.toml_write import experiment_toml

ExperimentSource = str | Path | Mapping[str, Any] | Experiment
"""An experiment: its TOML file, the values of one, or one that was read."""


def read_experiment(source: ExperimentSource, overrides: Sequence[str] = ()) -> Experiment:
    """The resolved experiment of `source` with `--set` overrides applied in order.

    Raises InputError with every problem that can be known from it alone, and for an override that
    names nothing.
    """
    file, text = None, ""
    if isinstance(source, str | Path):
        file = Path(source)
        text = read_text(file)
        raw = parse_toml(text, file)
    elif isinstance(source, Experiment):
        raw = load_toml(experiment_toml(source))
    else:
        raw = dict(source)
    if "base" in raw:  # which every sweep has, and no experiment
        fix = "run it with 'assay fill', see it with 'assay matrix', or give the file of one of "
        fix += f"its experiments: {raw['base']}"
        raise InputError("is a sweep, not an experiment", file=file, fix=fix)
    settings = [parse_override(override) for override in overrides]
    values = apply_overrides(raw, settings)
    problems = [Problem(*unusable) for unusable in unusable_values(values)]
    if HELPERS in values:
        problems.append(Problem((HELPERS,), UNKNOWN, "a helper model is written [model.NAME]"))
    experiment = None
    try:
        experiment = Experiment.model_validate(values)
        problems += [_unknown_vary(path) for path in experiment.vary if not _is_field(path, values)]
    except ValidationError as invalid:
        paths = {problem.path for problem in problems}
        others = problems_in(invalid.errors(include_url=False), values)
        problems += [other for other in others if other.path not in paths]
    if experiment is None or problems:
        raise first_error(problems, file, text, settings)
    return experiment.read_from(ExperimentOrigin(file, tuple(overrides)))


def read_text(file: Path) -> str:
    """The text of a file. Raises InputError."""
    if file.is_dir():
        raise InputError("is a folder", file=file, fix="name the file in it")
    if not file.is_file():
        there = [each.name for each in file.parent.glob("*.toml")]
        fix = nearest(file.name, there) if there else "restore it, or name another file"
        raise InputError("no such file", file=file, fix=fix)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error


def parse_toml(text: str, file: str | Path) -> dict[str, Any]:
    """The plain values of a TOML text. Raises InputError with the line."""
    try:
        return load_toml(text)
    except InputError as invalid:
        problem = f"not valid TOML: {invalid.problem}"
        fix = _both_models(text, invalid.line)
        raise InputError(problem, file=file, line=invalid.line, fix=fix) from None


def _both_models(text: str, line: int | None) -> str | None:
    """The fix where `model` is a string and, at this line, a table."""
    lines = text.splitlines()
    at = lines[line - 1] if line is not None and line <= len(lines) else ""
    trained = re.search(r"(?m)^[ \t]*model[ \t]*=[ \t]*(.*?)[ \t]*$", text)
    if trained is None or not re.match(r"[ \t]*\[?[ \t]*model[ \t]*\.", at):
        return None
    return f"with helper models, write model.{POLICY} = {trained[1]} in place of model = ..."


def _is_field(dotted: str, values: Mapping[str, Any]) -> bool:
    """Whether the path may be written; the control may have stages that this file has not."""
    path = tuple(dotted.split("."))
    if path[0] in NAMED and path[1:2]:
        names = values.get(path[0], {})
        names = names if isinstance(names, Mapping) else {}
        values = {path[0]: names if path[1] in names else {}}
    return bool(annotations_at(path, values))


def _unknown_vary(dotted: str) -> Problem:
    first = dotted.split(".")[0]
    fix = "write a dotted path such as stage.NAME.reward"
    if first not in Experiment.model_fields:
        fix = nearest(first, Experiment.model_fields)
    return Problem(("vary",), f"{dotted!r} is not a field of an experiment", fix)


def first_error(
    problems: Sequence[Problem],
    file: str | Path | None,
    text: str,
    settings: Sequence[Override],
) -> InputError:
    """The error for problems, that which comes first in the file before the others.

    Missing keys come after the others, because a misspelt key explains one; overrides come last.
    """
    lines = key_lines(text)
    placed = [(problem, _setting(problem.path, settings)) for problem in problems]
    placed.sort(
        key=lambda p: (p[1] is not None, p[0].problem == MISSING, line_of(p[0].path, lines) or 0)
    )
    each = [_error(*one, file, lines) for one in placed]
    others = len(problems) - 1
    count = f"{others} more problem{'s' * (others > 1)}" if others else ""
    error = _error(*placed[0], file, lines, count)
    error.each = tuple(each) if others else ()
    return error


def refuse(problems: Sequence[Problem], origin: ExperimentOrigin) -> None:
    """Raise InputError for problems of an experiment, if there are any."""
    if problems:
        text = "" if origin.file is None else read_text(origin.file)
        settings = [parse_override(each) for each in origin.overrides]
        raise first_error(problems, origin.file, text, settings)


@contextmanager
def lines_named(origin: ExperimentOrigin) -> Iterator[None]:
    """Inside, an InputError of a field of an experiment also names its file and line, or the
    override that wrote the field."""
    try:
        yield
    except InputError as error:
        name_line(error, origin)
        raise


def name_line(error: InputError, origin: ExperimentOrigin) -> None:
    """Make an error of a field of an experiment name the file and line, or the override."""
    path = tuple((error.field or "").split("."))
    if error.file is not None or path[0] not in Experiment.model_fields:
        return
    setting, line = _setting(path, [parse_override(each) for each in origin.overrides]), None
    if setting is None and origin.file is not None and origin.file.is_file():
        line = line_of(path, key_lines(read_text(origin.file)))
    InputError.__init__(
        error,
        error.problem,
        file=place(setting.text) if setting else origin.file,
        line=line,
        field=error.field,
        fix=error.fix,
    )


def _error(
    problem: Problem,
    setting: Override | None,
    file: str | Path | None,
    lines: dict[KeyPath, int],
    count: str = "",
) -> InputError:
    return InputError(
        problem.problem,
        file=place(setting.text) if setting else file,
        line=None if setting else line_of(problem.path, lines),
        field=".".join(map(str, problem.path)),
        fix="; ".join(part for part in (problem.fix, count) if part),
    )


def _setting(path: KeyPath, settings: Sequence[Override]) -> Override | None:
    """The last override that wrote the value at `path`."""
    for setting in reversed(settings):
        if path[: len(setting.path)] == setting.path:
            return setting
    return None
