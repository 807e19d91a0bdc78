"""Files of runs that a test has changed, as if the run had written them so."""

from pathlib import Path

from assay.data.files import place_in_lab
from assay.runs.run_files import listed_path


def as_written(file: Path) -> None:
    """Record the checksum of a file of a run as it is now."""
    place = place_in_lab(file)
    assert place is not None
    content = file.read_bytes()
    with listed_path(place[0], file) as temporary:
        temporary.write_bytes(content)
