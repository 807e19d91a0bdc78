"""`assay explain WORD`: what a key of the experiment file, a table or a preset means."""

import re
from dataclasses import asdict
from pathlib import Path

from assay.cli.output import Outcome


def explain(
    root: Path,
    word: str,
) -> Outcome:
    """Say what a key, a table or a preset means.

    word: A key (lr, stage.rl.kl), a table, preset or task.
    """
    from rich.text import Text

    from assay.errors import InputError, nearest
    from assay.experiment.reference import reference
    from assay.rl.presets import ELSEWHERE, PRESETS
    from assay.tasks.task import TASKS, task

    kind, _, source = word.partition(":")
    if kind in TASKS and (told := task(kind).explained(source)):
        return Outcome({"explained": told}, [Text("\n".join(told))])
    name = word.strip("[]`").split(".")[-1]
    entries: dict[str, list[str]] = {}
    keys: set[str] = {*PRESETS}
    page = reference()
    bare = re.findall(rf"^- `{re.escape(name)}` (\(.*\))$", page, re.MULTILINE)
    inner = re.findall(r"\(#(\w+)\)", " ".join(bare))  # which say what the key means
    page = re.sub(r"\[(\w+)\]\([\w.]*#\w+\)", r"\1", page)
    for part in re.split(r"\n##+ ", page)[1:]:
        heading, *lines = filter(str.strip, part.splitlines())
        keys |= {line.split("`")[1] for line in lines if line.startswith("- `")}
        table = {name.lower(), *inner} & {*re.findall(r"\w+", heading.lower())}
        if chosen := [line for line in lines if table or line.startswith(f"- `{name}` ")]:
            entries[heading] = chosen
    preset = asdict(PRESETS[name]) | {"elsewhere": ELSEWHERE[name]} if name in PRESETS else {}
    if not entries and not preset:
        raise InputError(f"no key, table or preset is called {name!r}", fix=nearest(name, keys))
    shown = [f"{key}: {value}" for key, value in preset.items() if value is not None]
    for heading, lines in entries.items():
        shown += [heading, *(f"  {line}" for line in lines)]
    return Outcome({"entries": entries, "preset": preset}, [Text("\n".join(shown))])
