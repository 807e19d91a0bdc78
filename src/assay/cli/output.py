"""What all verbs share: results on stdout, everything else on stderr, errors in one line.

A verb is a function from the lab's root and its own options to an `Outcome`, and prints nothing.
`verb` adds `--lab` and `--json`, prints the outcome, and turns exceptions into exit codes. Shell
completion of run names is here too; it reads folder names only.
"""

import errno
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from rich.console import RenderableType
from rich.text import Text

from assay.errors import AssayError, Finding, InputError, RunFailure
from assay.pages.safe_console import console, tell

if TYPE_CHECKING:
    from assay.pages.page import Block

SCHEMA = 1
BLANK_LINES = 2
"""Blank lines in a row that are shown as they are."""
MOST_LINES = 400
MOST_CHARACTERS = 40_000
"""Characters of one answer or prompt on a terminal."""

Lab = Annotated[
    Path | None, typer.Option("--lab", help="The lab's root; else ASSAY_LAB, else this folder.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Lang = Annotated[str, typer.Option(help="Language of tables and pages: en or zh.")]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a verb, for programs (`result`) and for people (`shown`)."""

    result: Any
    """Plain values, paths, mappings and dataclasses."""
    shown: "Sequence[RenderableType | Block]" = ()
    findings: Sequence[Finding] = ()
    warnings: Sequence[str] = ()
    exit_code: int = 0
    lang: str = "en"
    """Language of the words around the findings."""
    counted: Sequence[str] = ()
    """Severities whose findings are not written out for people."""
    failed: str = ""
    """What a gate of the user's did not let pass: the one line on stderr."""


@dataclass(frozen=True, slots=True)
class Common:
    """The options that may stand before the verb as well as after it."""

    lab: Path | None
    json: bool


def interrupted(command: str = "") -> AssayError:
    """The user pressed Ctrl-C; `command` goes on, or the same command where none is named."""
    way = f"continue with '{command}'" if command else "call the same command again to go on"
    error = AssayError(f"interrupted; {way}")
    error.exit_code = 130
    return error


INHERITED = ("sympy", "huggingface_hub")
"""Packages that come with those of the extra, and are imported by themselves."""
AWAY = "move what lies there away, or name another path"
RIGHTS = "give this user the right to it, or name another path"
REMEDIES = {
    errno.EACCES: RIGHTS,
    errno.EPERM: RIGHTS,
    errno.EROFS: "it is mounted read-only; choose another lab with --lab",
    errno.EISDIR: AWAY,
    errno.ENOTDIR: AWAY,
    errno.EEXIST: AWAY,
    errno.ELOOP: "mend the link",
    errno.ENAMETOOLONG: "choose a shorter name",
}
EXHAUSTED = {
    errno.ENOSPC: "free some space on its disk and call the command again",
    errno.EDQUOT: "free some of this user's quota and call the command again",
    errno.EFBIG: "raise the limit of the size of files, 'ulimit -f'",
    errno.EMFILE: "raise the limit of open files, 'ulimit -n'",
    errno.ENFILE: "raise the system's limit of open files",
    errno.EIO: "its disk fails, or files may not grow: see the system's log and 'ulimit -f'",
}
SQLITE = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_CANTOPEN": errno.EACCES,
    "SQLITE_IOERR": errno.EIO,
}
"""SQLite's names of what stopped it, by their beginnings."""


def foreseen(error: BaseException, folder: Path) -> AssayError | None:
    """What may happen to any command: an absent package, or a system that refuses or is full.

    None where it is something else. `folder` is named where the system names no path.
    """
    if isinstance(error, AssayError):
        return error
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0].replace("-", "_")
        problem = f"this command needs {name}, which comes with the extra 'train'"
        fix = "pip install 'assay-lab[train]'"
        return InputError(problem, fix=fix) if name in train_packages() else None
    code = system_code(error)
    quoted = re.search(r"'(/[^']+)'", str(error))  # as pyarrow names a path
    target = getattr(error, "filename2", None) or getattr(error, "filename", None)
    named = target or (quoted and quoted[1])
    path = Path(os.fsdecode(named)) if isinstance(named, str | bytes) else None
    if code in EXHAUSTED:
        return RunFailure(f"{path or folder}: {os.strerror(code)} ({EXHAUSTED[code]})")
    if code in REMEDIES and (path or not isinstance(error, OSError)):
        return InputError(os.strerror(code), file=path or folder, fix=REMEDIES[code])
    return None


def train_packages() -> set[str]:
    """The packages that the extra `train` installs, as they are imported."""
    from importlib.metadata import requires

    wanted = [
        text for text in requires("assay-lab") or () if "extra == 'train'" in text.replace('"', "'")
    ]
    return {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in wanted} | {*INHERITED}


def system_code(error: BaseException) -> int | None:
    """The errno of a system's error, as Python, SQLite or the Rust of safetensors tell it."""
    if isinstance(error, OSError):
        return error.errno
    name = getattr(error, "sqlite_errorname", None) or ""
    if name:
        return next((code for start, code in SQLITE.items() if name.startswith(start)), None)
    told = re.search(r"\(os error (\d+)\)", str(error))
    return int(told[1]) if told else None


def unexpected(error: BaseException, folder: Path | None = None) -> RunFailure:
    """The error in one line; its traceback is kept in `folder`, or where temporary files are."""
    import traceback

    from assay.tasks.user_code import in_a_line

    trace = "".join(traceback.format_exception(error))
    message = " ".join(in_a_line(error).split())
    return RunFailure(f"{message} (traceback {keep(trace, folder)})")


def keep(trace: str, folder: Path | None) -> str:
    """Write a traceback; returns its path, or the traceback itself if no disk takes it."""
    import tempfile

    for place in (folder, None):
        try:
            handle, name = tempfile.mkstemp(prefix="traceback-", suffix=".txt", dir=place)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(trace)
        except OSError:  # a full disk may be the very error that is reported
            continue
        return f"in {name}"
    return f"not kept: {trace!r}"


@contextmanager
def executing(root: Path, name: str):
    """Raises what `interrupted` makes on Ctrl-C; RunFailure for unknown errors."""
    from assay.runs.run_directory import read_status, runs_of

    try:
        yield
    except AssayError:
        raise
    except BaseException as error:  # a SystemExit of somebody's code must not end this as it likes
        folder = next((run.path for run in reversed(runs_of(root, name))), None)
        if isinstance(error, KeyboardInterrupt):
            stopped = folder and read_status(folder).status != "finished"
            raise interrupted(f"assay resume {name}" if stopped else "") from None
        raise (foreseen(error, folder or root) or unexpected(error, folder)) from error


def name_of(function: Callable[..., Outcome]) -> str:
    """The verb that a function is, whose name Python may have taken."""
    return function.__name__.rstrip("_")


def verb(function: Callable[..., Outcome], before: str = "") -> Callable[..., None]:
    """`function(root, ...)` as a command with the common options; `before` precedes its name. Its
    docstring is the help page: behind what it does, lines `option: text`."""

    def command(ctx: typer.Context, lab: Lab = None, json: Json = False, **options: Any) -> None:
        from assay.runs.run_directory import lab_root

        ctx.obj = Common(lab or ctx.obj.lab, json or ctx.obj.json)
        if ctx.invoked_subcommand is not None:  # its verb is called next
            return
        root = lab_root(str(ctx.obj.lab) if ctx.obj.lab else None)
        name, work = before + name_of(function), partial(function, root, **options)
        raise typer.Exit(present(name, ctx.obj.json, work, root))

    about, *lines = re.split(r"\n(?=\w+: )", inspect.cleandoc(function.__doc__ or ""))
    told = {name: " ".join(text.split()) for name, _, text in (x.partition(": ") for x in lines)}
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    own = [explained(each, told[each.name]) if each.name in told else each for each in own]
    shared = list(inspect.signature(command).parameters.values())[:3]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword) for p in (*own, *shared)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__, command.__name__ = about, function.__name__
    return command


def explained(option: inspect.Parameter, text: str) -> inspect.Parameter:
    """The parameter of a verb with its help: an argument, if it has no default; what is False by
    default has no `--no-`."""
    kind, info = option.annotation, None
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    elif option.default is inspect.Parameter.empty:
        info = typer.Argument()
    else:
        info = typer.Option(*[f"--{option.name.replace('_', '-')}"] * (option.default is False))
    info = copy(info)
    info.help = text
    return option.replace(annotation=Annotated[kind, info])


def present(name: str, as_json: bool, work: Callable[[], Outcome], root: Path = Path()) -> int:
    """Run the verb, print its outcome, and return the exit code."""
    try:
        outcome = work()
    except KeyboardInterrupt:
        outcome = failed(interrupted())
    except BaseException as error:
        outcome = failed(foreseen(error, root) or unexpected(error))
    if as_json:
        keys = ("severity", "what", "evidence", "fix")
        value = {
            "schema": SCHEMA,
            "command": name,
            "result": outcome.result,
            "findings": [taken(each, *keys) for each in outcome.findings],
            "warnings": outcome.warnings,
        }
        typer.echo(escaped(json.dumps(plain(value), ensure_ascii=False, allow_nan=False)))
    else:
        print_shown(outcome)
    for each in [Finding("error", outcome.failed)] if outcome.failed else outcome.findings:
        if each.severity == "error" and outcome.exit_code:
            typer.echo(f"assay: {one_line(each)}", err=True)
    return outcome.exit_code


def one_line(finding: Finding) -> str:
    """Place or evidence, what is wrong, and what to do."""
    from assay.pages.words import flat

    text = ": ".join(filter(None, (finding.evidence, finding.what)))
    return flat(text + (f" ({finding.fix})" if finding.fix else ""))


def failed(error: AssayError) -> Outcome:
    """The error as a finding; an error with several problems as one for each."""
    findings = [Finding("error", str(each)) for each in error.each or (error,)]
    return Outcome(None, findings=findings, exit_code=error.exit_code)


def escaped(text: str) -> str:
    """JSON of the same value, with control characters written as escapes."""
    from assay.pages.words import CONTROL_PICTURES

    return text.translate({code: f"\\u{code:04x}" for code in CONTROL_PICTURES})


def print_shown(outcome: Outcome) -> None:
    """Tables and lines for people; warnings and the errors that ended the verb go to stderr."""
    from assay.pages.page import Block
    from assay.pages.terminal import blocks_shown, finding_text
    from assay.pages.words import visible, words

    out = console(sys.stdout)
    for finding in outcome.findings:
        severity = finding.severity
        if severity not in outcome.counted and (severity != "error" or not outcome.exit_code):
            out.print(finding_text(finding, words(outcome.lang)), soft_wrap=True)
    shown: list[RenderableType] = []
    for each in outcome.shown:
        own = isinstance(each, Block)
        shown += blocks_shown([each], words(outcome.lang)) if own else [each]
    for item in shown:
        laid_out = isinstance(item, str) or (isinstance(item, Text) and bool(item.no_wrap))
        # Rich itself drops some control characters; they must be visible.
        out.print(visible(item) if isinstance(item, str) else item, soft_wrap=laid_out)
    for warning in outcome.warnings:
        tell(f"warning: {warning}")


def quoted(text: str) -> str:
    """An answer or a prompt for a terminal: each line behind a bar, so that none passes for the
    lab's own, control characters depicted, runs of blank lines counted, and a long text cut.
    """
    from assay.pages.words import visible

    lines, blank = [], 0
    cut = text[:MOST_CHARACTERS]
    for line in [*visible(cut).split("\n"), None]:
        if line is not None and not line.strip():
            blank += 1
            continue
        lines += [""] * blank if blank <= BLANK_LINES else [f"[{blank} blank lines]"]
        lines += [] if line is None else [line]
        blank = 0
    whole = len(cut) == len(text) and len(lines) <= MOST_LINES
    more = [] if whole else ["  [cut here: --json has all]"]
    return "\n".join([*(f"  │ {line}" for line in lines[:MOST_LINES]), *more])


def taken(value: object, *names: str) -> dict[str, Any]:
    """Attributes of a value by their names."""
    return {name: getattr(value, name) for name in names}


def plain(value: Any) -> Any:
    """The value as JSON has it: paths as text, a number that is not finite as null.

    Fields of a dataclass that are kept out of its `repr` are functions, and left out.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    return str(value) if isinstance(value, Path) else value


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of runs that begin with what was typed; with a '/', the runs of that name by id."""
    from assay.runs.run_directory import all_runs, lab_root

    folders, at = [], ctx
    while at is not None:
        folders, at = [*folders, at.params.get("lab")], at.parent
    folder = next(filter(None, folders), None)
    runs = all_runs(lab_root(str(folder) if folder else None))
    texts = map(str, runs) if "/" in incomplete else dict.fromkeys(run.name for run in runs)
    return [text for text in texts if text.startswith(incomplete)]
