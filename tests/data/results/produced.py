"""The files in `produced/`, by the reader that is for them."""

from pathlib import Path

FOLDER = Path(__file__).parent / "produced"


def _all(pattern: str) -> tuple[Path, ...]:
    files = tuple(sorted(FOLDER.glob(pattern)))
    assert files, pattern
    return files


PRODUCED = {
    "lm-eval": _all("lm_eval/*/samples_*.jsonl"),
    "inspect-ai": _all("inspect_ai/*"),
    "bfcl": _all("bfcl/*/*/*/*.json"),
}


def copied(name: str, to: Path) -> Path:
    """A folder of files, copied so that a test may damage it."""
    import shutil

    return Path(shutil.copytree(FOLDER / name, to / name))
