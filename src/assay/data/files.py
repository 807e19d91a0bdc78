"""Writes files and folders atomically, builds cached folders once, makes and checks fingerprints.

A file is written under a hidden name that ends in `.part`, locked, and renamed when complete, so
the remains of a killed process can be recognised. The sha256 of a folder's files lies in one more
file beside them. What files hold, and which may be absent, is known to the caller. Also keeps what
was worked out from a file until it is another one, and reads a bare `OWNER/NAME` as what the
Hugging Face hub calls so; no network is asked. Rows and texts have fingerprints as well, and the
normal forms that leakage checks compare.
"""

import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from filelock import lock_descriptor

from assay.data.episode import Context
from assay.data.row import Message, Row, TextPart
from assay.errors import InputError

PART = ".part"
"""How the name of what is not whole yet ends."""


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`, which becomes `path` once it is on the disk.

    If the block raises, nothing is left behind. Raises InputError, before the block and after it,
    where `path` exists and is no empty folder.
    """
    path = Path(path)
    refuse_taken(path)
    with scratch_folder(path.parent, path.name) as temporary:
        yield temporary
        for inner in sorted(temporary.rglob("*")):
            sync(inner)
        sync(temporary)
        refuse_taken(path)
        temporary.rename(path)
    sync(path.parent)


@contextmanager
def scratch_folder(folder: Path, name: str) -> Iterator[Path]:
    """Yields a temporary folder called after `name` in `folder` (made if absent), which goes in the
    end, unless it was renamed."""
    temporary, handle = _begin(folder, name, Path.mkdir)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(handle)


def refuse_taken(path: Path) -> None:
    """Raise InputError where something lies at `path`, but for an empty folder."""
    if path.is_symlink() or path.is_file() or (path.is_dir() and any(path.iterdir())):
        problem = "is not empty" if path.is_dir() else "is no folder"
        raise InputError(problem, file=path, fix="name a folder that does not exist yet")


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yields a temporary name in the folder of `path` (made if absent), which replaces `path`.

    The block writes the temporary file, which is on the disk before it takes its name. If the
    block raises, nothing is left behind and `path` is as it was.
    """
    path = Path(path)
    temporary, handle = _begin(path.parent, path.name, Path.touch)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    except OSError as error:
        if error.filename is None:  # the system names no path where a disk is full
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    sync(path.parent)


def atomic_write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def atomic_write_text(path: str | Path, content: str) -> None:
    """Write `content` to `path` as UTF-8 with the line ends it has, whole or not at all."""
    atomic_write_bytes(path, content.encode("utf-8"))


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what killed processes left half written in a folder and those inside it.

    What a living process is writing stays. A folder that is written without a lock of its own, as a
    checkpoint is, must be another lock's: the caller holds that.
    """
    return [path for path in sorted(folder.rglob(f".*{PART}")) if remove_left(path)]


def remove_parts(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half written in a folder itself: of `name`, or of all."""
    pattern = f".*{PART}" if name is None else f".{glob.escape(name)}.*{PART}"
    for path in folder.glob(pattern):
        remove_left(path)


def remove_left(path: Path) -> bool:
    """Remove a half written file or folder unless a living process is at it; False if one is."""
    try:
        handle = lock(path, wait=False)
    except (FileNotFoundError, BlockingIOError):  # gone already, or somebody is writing it
        return False
    try:
        if not os.fstat(handle).st_nlink:
            return False
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)
    return True


def _begin(folder: Path, name: str, make: Callable[[Path], None]) -> tuple[Path, int]:
    """Make what is to be called `name` in `folder` under a hidden name, and lock it; what killed
    processes left of the same goes first."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_parts(folder, name)
    temporary = folder / f".{name}.{secrets.token_hex(8)}{PART}"
    while True:
        make(temporary)
        try:
            handle = lock(temporary)
        except FileNotFoundError:  # another process took it for a leftover, before it was locked
            continue
        if os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)


def lock(path: Path, *, wait: bool = True, shared: bool = False) -> int:
    """Lock a file or folder until the returned handle is closed, or the process dies; `shared`:
    with others that share it, without waiting.

    The lock is the system's (flock), on `path` itself and not on a file beside it. Raises
    FileNotFoundError, and BlockingIOError where another has it and `wait` is False.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        if shared:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        elif not lock_descriptor(handle, blocking=wait):
            raise BlockingIOError(f"{path} is locked")
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of an existing file or folder, once others have let it go."""
    handle = lock(path)
    try:
        yield
    finally:
        os.close(handle)


def append_line(file: Path, line: str) -> None:
    """Add a line to a journal. What a kill left of the last one goes first."""
    with file.open("ab+") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(line.encode("utf-8") + b"\n")


def sync(path: Path) -> None:
    """Wait until the file or folder at `path` is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_file(path: str | Path) -> str:
    """The sha256 of the bytes of the file, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def expanded(name: str | Path) -> Path:
    """The path with the home folder for a leading `~` or `~USER`. Raises InputError."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        fix = "write the path in full"
        raise InputError("that user has no home folder", file=name, fix=fix) from error


def cache_root() -> Path:
    """The cache directory; it need not exist yet. Raises InputError."""
    return expanded(os.environ.get("ASSAY_CACHE") or "~/.cache/assay")


def built_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return `target`, after `build(directory)` has filled it if it does not exist yet.

    A lock beside it keeps other processes waiting; `target` is either absent or whole. When `build`
    raises, nothing is left behind; what a killed process left goes before the next one builds.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    guard = target.with_name(target.name + ".lock")
    guard.touch()
    with locked(guard):
        if target.is_dir():
            return target
        with scratch_folder(target.parent, target.name) as temporary:
            build(temporary)
            for path in temporary.rglob("*"):
                sync(path)
            temporary.rename(target)
        sync(target.parent)
    return target


_HALF = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair."""
    return _HALF.sub("\ufffd", text)


_IN_RUN = re.compile(
    r"((?:.*/)?runs/([^/]+/[^/]+))/(?:aside/\d+/)?"
    r"((?:checkpoints|samples|evaluations|agreement)/.+|[^/]+)"
)
_UNFINISHED = re.compile(rf"(^|/)\.([^/]+?)(?:\.[0-9a-f]{{16}})?{re.escape(PART)}(?=/|$)")


def place_in_lab(path: Path) -> tuple[Path, str] | None:
    """The folder of the run that `path` lies in, and `NAME/ID/PATH`, its name once it is whole and
    before it was put aside; None outside of runs. What a run writes may hold this name itself."""
    match = _IN_RUN.fullmatch(path.as_posix())
    return (Path(match[1]), _UNFINISHED.sub(r"\1\2", f"{match[2]}/{match[3]}")) if match else None


OF = "of"
"""Key of the name in the lab that a line of a journal holds; older ones lack it."""


def named_line(file: Path, values: Mapping[str, Any]) -> str:
    """A line for a journal; in a run it holds the journal's name."""
    place = place_in_lab(file)
    return json.dumps({**values, OF: place[1]} if place else values)


def holds_another(path: Path, name: str) -> str:
    """What lies at a path in a run, where that is called `name`; "" where it is called as it lies,
    or where nobody can tell."""
    place = place_in_lab(path)
    if not name or place is None or place[1] == name:
        return ""
    inside = place[1].split("/", 2)[2]
    if name.endswith(f"/{inside}"):
        return f"is of the run {name.removesuffix(f'/{inside}')}"
    return f"holds {name.removeprefix(place[1].removesuffix(inside))}"


CHECKSUMS = "checksums.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written."""

    file: Path
    problem: str


def write_checksums(folder: Path) -> None:
    """Write the file for all others that lie in `folder`, each by its path inside; of one in a run
    it holds the name too."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    files = {name: sha256_file(folder / name) for name in names if name != CHECKSUMS}
    record: dict[str, Any] = {"schema": SCHEMA, "files": files}
    if place := place_in_lab(folder):
        record["name"] = place[1]
    record["sha256"] = _own(record)
    (folder / CHECKSUMS).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def recorded_checksums(folder: Path) -> Mapping[str, str] | Damage | None:
    """The sha256 of each file by its name; None where an older version recorded none, Damage where
    the folder is another one of a run than these files were written to."""
    file = folder / CHECKSUMS
    if not file.exists():
        return None
    try:
        record: Any = json.loads(file.read_bytes())
        if record.pop("sha256") == _own(record):
            other = holds_another(folder, record.get("name", ""))
            return Damage(folder, other) if other else record["files"]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass  # it is something else than what was written, as below
    return Damage(file, "is damaged: it does not hold what was written")


def find_damage(folder: Path, *, unless: Collection[str] = ()) -> list[Damage]:
    """The files that are damaged or missing; `unless` names those that are not looked at.

    Nothing is found where no checksums were recorded.
    """
    recorded = recorded_checksums(folder) or {}
    if isinstance(recorded, Damage):
        return [recorded]
    names = [name for name in recorded if name not in unless]
    damages = (compare(folder / name, recorded[name]) for name in names)
    return [damage for damage in damages if damage is not None]


def compare(file: Path, *expected: str) -> Damage | None:
    """What is wrong with a file whose sha256 is to be one of `expected`."""
    if not file.is_file():
        return Damage(file, "is missing")
    digest = sha256_file(file)
    return None if digest in expected else Damage(file, changed(digest, expected))


def changed(sha256: str, written: Sequence[str]) -> str:
    """That a file with this hash is none of those that were written."""
    return f"is damaged: its sha256 begins with {sha256[:12]}, {written[-1][:12]} was written"


def _own(record: Mapping[str, Any]) -> str:
    """The hash of the record's other entries, which the record holds too."""
    return sha256_text(canonical_json(record))


Rest = ParamSpec("Rest")
Value = TypeVar("Value")


def stamp(file: Path) -> Hashable:
    """What is another one after every write; None where there is no file."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def kept(
    most: int,
) -> Callable[[Callable[Concatenate[Path, Rest], Value]], Callable[Concatenate[Path, Rest], Value]]:
    """Decorates a function of a file and hashable values: it reads again only what has changed.

    The `most` latest results stay in memory; callers share them and must not change them.
    """

    def decorate(
        read: Callable[Concatenate[Path, Rest], Value],
    ) -> Callable[Concatenate[Path, Rest], Value]:
        @lru_cache(maxsize=most)
        def again(_: Hashable, file: Path, *arguments: Rest.args, **named: Rest.kwargs) -> Value:
            return read(file, *arguments, **named)

        @wraps(read)
        def reading(file: Path, *arguments: Rest.args, **named: Rest.kwargs) -> Value:
            return again(stamp(file), file, *arguments, **named)

        return reading

    return decorate


BARE = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
FILES = (".csv", ".gguf", ".json", ".jsonl", ".md", ".parquet", ".toml", ".txt", ".yaml")


def with_scheme(text: str, root: Path = Path()) -> str:
    """`hf:OWNER/NAME` of a bare name; any other source as it is.

    Raises InputError where a file or folder of that name lies in `root`.
    """
    if BARE.fullmatch(text) is None:
        return text
    if (root / text).exists():
        problem = f"{text!r} lies here and could be a name of the hub"
        raise InputError(problem, fix=f"write path:{text} or hf:{text}")
    return text if text.lower().endswith(FILES) else f"hf:{text}"


def canonical_json(value: Any) -> str:
    """JSON that is the same text for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_text(text: str) -> str:
    """The sha256 of the UTF-8 bytes of `text`, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def prompt_sha256(context: Context | None) -> str | None:
    """The fingerprint of a prompt in tokens; None of one that is no tokens."""
    return sha256_text(canonical_json(list(context))) if isinstance(context, tuple) else None


def content_id(value: Any) -> str:
    """The id of a row whose source gives none: 16 hexadecimal digits of its canonical JSON."""
    return sha256_text(canonical_json(value))[:16]


def hash_ids(rows: Iterable[Row]) -> str:
    """One hash of the row ids in their order."""
    return sha256_text(canonical_json([row.id for row in rows]))


def hash_contents(rows: Iterable[Row]) -> str:
    """One hash of everything the rows say, in their order; where they were read does not count."""
    digest = hashlib.sha256()
    for row in rows:
        messages = [_without_defaults(message) for message in row.messages]
        content = asdict(replace(row, messages=())) | {"messages": messages}
        del content["origin"], content["columns"]
        if not row.template_options:
            del content["template_options"]
        digest.update(sha256_text(canonical_json(content)).encode("ascii"))
    return digest.hexdigest()


def _without_defaults(message: Message) -> dict[str, Any]:
    """So that hashes of before a field existed stay."""
    content = asdict(replace(message, parts=()))
    for name, default in (("loss", True), ("parts", ()), ("name", "")):
        if content[name] == default:
            del content[name]
    if message.parts:
        content["parts"] = [
            part.text if isinstance(part, TextPart) else {"image": part.sha256}
            for part in message.parts
        ]
    return content


def normalise_text(text: str) -> str:
    """`text` in NFKC, case-folded, with every run of punctuation and white space as one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\W_]+", " ", folded).strip()


_SPACING = re.compile(
    r"\\(?:[,;:!> ()\[\]]|q?quad(?![a-z])|(?:left|right|displaystyle)(?![a-z]))|[\s$~{}]"
)


def unspaced(text: str) -> str:
    r"""`text` in NFKC, case-folded, without spaces, LaTeX's spacing, delimiters and braces.

    `$\dfrac{1}{2}\,x$` is `\( \frac 12 x \)`. Signs stay, as 1+12 is not 11+2, but not at
    the end.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _SPACING.sub("", re.sub(r"\\[dt]frac", r"\\frac", folded)).rstrip(".,:;!?")
