"""`assay verify RUN`: compares every file of a run with its checksum."""

from dataclasses import asdict
from pathlib import Path

from assay.cli.output import Outcome
from assay.cli.resume import RunName


def verify(root: Path, run: RunName) -> Outcome:
    """Name every file of a run that is damaged, missing or unknown; exit code 1 if there is one."""
    from assay.runs.run_names import find_run, parse_run_name
    from assay.runs.verify_files import verify_run

    found = find_run(root, parse_run_name(run))
    verified = verify_run(found)
    shown = [f"{fault.kind}: {fault.file}: {fault.problem}" for fault in verified.faults]
    shown += [f"no hash recorded: {name}" for name in verified.without]
    faults = f"{len(verified.faults)} damaged, missing or unknown"
    shown.append(f"{found}: {verified.compared} files compared with their checksums, {faults}")
    result = {"run": str(found), "path": found.path, **asdict(verified)}
    return Outcome(result, shown, exit_code=int(bool(verified.faults)))
