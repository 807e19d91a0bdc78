"""Members of a zip archive, also of one packed with Zstandard, which Python 3.11 cannot read."""

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from assay.data.record import DataError

ZSTANDARD = 93
"""The number of the method in the zip format (APPNOTE 4.4.5)."""
TORN = (zlib.error, struct.error, pa.ArrowException, EOFError)
"""What unpacking raises where bytes are missing or changed."""
LOCAL_HEADER = struct.Struct("<26x2H")
"""The header before the bytes of a member: 26 bytes, then the lengths of its name and extras."""


def read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The members whose name is wanted, in the order of the archive.

    Raises DataError for a damaged archive and for a compression that cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            members = [member for member in archive.infolist() if wanted(member.filename)]
            return {m.filename: _read(archive, stream, m) for m in members}
    except (zipfile.BadZipFile, NotImplementedError, OSError, *TORN) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"is a damaged zip: {problem}", file=path) from error


def _read(archive: zipfile.ZipFile, stream: BinaryIO, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type != ZSTANDARD:
        return archive.read(member)
    stream.seek(member.header_offset)
    name, extra = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))
    stream.seek(name + extra, 1)
    packed = stream.read(member.compress_size)
    content = pa.decompress(packed, member.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {member.filename}")
    return content
