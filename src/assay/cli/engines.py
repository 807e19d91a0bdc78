"""`assay engines`: the environments of other tools; `assay engines add NAME` installs one."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome


class Deed(StrEnum):
    """What is done with an environment."""

    ADD = "add"


def engines(
    root: Path,
    deed: Annotated[Deed | None, typer.Argument(help="Install the one that is named.")] = None,
    name: Annotated[str | None, typer.Argument(help="vllm, verl, swift, trl, ...")] = None,
) -> Outcome:
    """List the tools installed apart from Assay, or add one."""
    from rich.table import Table
    from rich.text import Text

    from assay.engines.environments import add, environment_for, survey
    from assay.errors import InputError

    if deed is not None and name is None:
        raise InputError("which one?", field="NAME", fix="such as: assay engines add vllm")
    found = survey() if name is None else [add(environment_for(name))]
    table = Table("", "package", "installed", "what does not fit")
    for each in found:
        table.add_row(*map(Text, (each.name, each.package, each.version, each.problem)))
    return Outcome({"engines": found}, [table])
