"""Members of a zip archive, also of one packed with Zstandard, which Python 3.11 cannot read.

Members are read into memory and never written, so that their names lead nowhere; how many there are
and what they unpack to has bounds.
"""

import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from assay.data.parquet import MOST_ENTRIES, Budget
from assay.data.raw_record import DataError

PIECE = 1 << 20
ZSTANDARD = 93
"""The number of the method in the zip format (APPNOTE 4.4.5)."""
TORN = (zlib.error, struct.error, pa.ArrowException, EOFError)
"""What unpacking raises where bytes are missing or changed."""
LOCAL_HEADER = struct.Struct("<26x2H")
"""The header before the bytes of a member: 26 bytes, then the lengths of its name and extras."""


def read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The members whose name is wanted, in the order of the archive.

    Raises DataError for a damaged archive, for a compression or an encryption that cannot be read,
    and for one that unpacks to more than `unpacked.Budget` allows.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            members = [member for member in archive.infolist() if wanted(member.filename)]
            refuse_bomb(path, members)
            return {m.filename: _read(archive, stream, m) for m in members}
    except (zipfile.BadZipFile, RuntimeError, OSError, *TORN) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"is a damaged zip: {problem}", file=path) from error


def refuse_bomb(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise DataError for more or larger members than a log has, before one is unpacked.

    Nothing is unpacked beyond the size that a member claims.
    """
    if len(members) > MOST_ENTRIES:
        raise DataError(f"holds {len(members)} members, more than {MOST_ENTRIES}", file=path)
    budget = Budget(path)
    for member in members:
        budget.spend(member.file_size)


def _read_pieces(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Piece by piece: read at once, a member is unpacked whole whatever size it claims."""
    with archive.open(member) as stream:
        return b"".join(iter(lambda: stream.read(PIECE), b""))


def _read(archive: zipfile.ZipFile, stream: BinaryIO, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return _read_pieces(archive, member)
    if member.compress_type != ZSTANDARD:
        raise NotImplementedError(f"compression {member.compress_type} is not read")
    stream.seek(member.header_offset)
    name, extra = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))
    stream.seek(name + extra, 1)
    packed = stream.read(member.compress_size)
    content = pa.decompress(packed, member.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {member.filename}")
    return content
