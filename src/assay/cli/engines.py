"""`assay engines`: the environments of other tools; `assay engines add NAME` installs one, and
`assay engines keys NAME` has the settings of one that trains.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome


class Deed(StrEnum):
    """What is done with an environment."""

    ADD = "add"
    KEYS = "keys"


def engines(
    root: Path,
    deed: Annotated[
        Deed | None, typer.Argument(help="Install one; or its settings in Assay's words.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="vllm, verl, swift, trl, ...")] = None,
    key: Annotated[str | None, typer.Argument(help="Only this setting, or the tool's key.")] = None,
) -> Outcome:
    """List the tools installed apart from Assay, add one, or show its keys."""
    from rich.table import Column, Table
    from rich.text import Text

    from assay.engines.environments import add, environment_for, survey
    from assay.errors import InputError

    if deed is not None and name is None:
        raise InputError("which one?", field="NAME", fix="such as: assay engines add vllm")
    if deed is Deed.KEYS and name is not None:
        from assay.trainers.reference import lines

        known = lines(name, key)
        table = Table("Assay", Column(name, overflow="fold"), "how", "what differs")
        for each in known:
            table.add_row(*map(Text, (each.ours, ", ".join(each.theirs), each.how, each.unlike)))
        return Outcome({"keys": known}, [table])
    found = survey() if name is None else [add(environment_for(name))]
    table = Table("", "package", "installed", "what does not fit")
    for each in found:
        table.add_row(*map(Text, (each.name, each.package, each.version, each.problem)))
    return Outcome({"engines": found}, [table])
