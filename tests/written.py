"""Files of runs that a test has changed, as if the run had written them so."""

from pathlib import Path

from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import listed_path


def as_written(run: RunDirectory, *files: Path) -> None:
    """Record the checksums of files as they are now."""
    for file in files:
        content = file.read_bytes()
        with listed_path(run.path, file) as temporary:
            temporary.write_bytes(content)
