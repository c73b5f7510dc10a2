"""Opens what a user hands to an importer: files, folders, archives, compressed or not.

Yields whole documents one at a time, so that memory is that of the largest document. What a file is,
is told by its first bytes, not by its name. Order is that of the arguments, of the archive, and
sorted by name inside a folder.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from v4traces.errors import TraceError
from v4traces.sniff import refuse_impostor

_GZIP, _XZ, _ZSTD, _ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_SUFFIXES = (".json", ".jsonl", ".ndjson")


class Document(NamedTuple):
    """The bytes of one file; `name` is for messages only and never enters a trace."""

    name: str
    data: bytes


def documents(paths: Iterable[Path]) -> Iterator[Document]:
    """All documents under `paths`. Raises `TraceError` for what cannot be a log."""
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if _is_log(file.name) and file.is_file())
            if not inside:
                raise TraceError(
                    f"{path} holds no {', '.join(_SUFFIXES)} files (compressed or not). Name the files"
                    " themselves if they are called otherwise."
                )
            for file in inside:
                yield from _open(file)
        else:
            yield from _open(path)


def _is_log(name: str) -> bool:
    for packed in (".gz", ".xz"):
        name = name.removesuffix(packed)
    return name.endswith((*_SUFFIXES, ".tar", ".tgz")) and not name.startswith(".")


def _open(path: Path) -> Iterator[Document]:
    try:
        with path.open("rb") as file, _unpacked(file, path.name) as content:
            if content.peek(512)[257:262] == b"ustar":
                yield from _members(content, path.name)
            else:
                yield _document(path.name, content.read())
    except FileNotFoundError:
        raise TraceError(f"there is no file or folder {path}. Check the path.") from None
    except PermissionError:
        raise TraceError(f"{path} may not be read. Check its permissions.") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError) as error:
        reason = str(error) or type(error).__name__
        raise TraceError(f"{path.name} is damaged or truncated ({reason}). Fetch it again.") from None


def _unpacked(file: IO[bytes], name: str) -> io.BufferedReader[Any]:
    """The content of `file`, decompressed as it is read."""
    packed: io.BufferedReader[Any] = io.BufferedReader(cast("io.RawIOBase", file))
    magic = packed.peek(8)
    for start, packer in ((_ZSTD, "zstd"), (_ZIP, "zip")):
        if magic.startswith(start):
            raise TraceError(
                f"{name} is packed with {packer}, which is not read here. Unpack it, or use .gz or .xz."
            )
    if magic.startswith(_GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=packed))
    if magic.startswith(_XZ):
        return io.BufferedReader(cast("io.RawIOBase", lzma.LZMAFile(packed)))
    return packed


def _members(content: io.BufferedReader[Any], name: str) -> Iterator[Document]:
    found = False
    with tarfile.open(fileobj=content, mode="r|") as archive:
        for member in archive:
            base = member.name.rpartition("/")[2]
            inner = archive.extractfile(member) if member.isfile() and _is_log(base) else None
            if inner is None:
                continue
            found = True
            with _unpacked(inner, base) as unpacked:
                yield _document(f"{name}:{member.name}", unpacked.read())
    if not found:
        raise TraceError(f"the archive {name} holds no {', '.join(_SUFFIXES)} files. Check what was packed.")


def _document(name: str, data: bytes) -> Document:
    refuse_impostor(data[:256], name)
    return Document(name, data)
