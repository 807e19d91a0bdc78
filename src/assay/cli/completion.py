"""What the shell offers behind Tab: the names of the lab's runs. Reads folder names only."""

import typer


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of runs that begin with what was typed; with a '/', the runs of that name by id."""
    from assay.runs.run_directory import all_runs, lab_root

    folder = ctx.params.get("lab") or (ctx.parent and ctx.parent.params.get("lab"))
    runs = all_runs(lab_root(str(folder) if folder else None))
    texts = map(str, runs) if "/" in incomplete else dict.fromkeys(run.name for run in runs)
    return [text for text in texts if text.startswith(incomplete)]
