"""What every importer is given, what it yields, and how one import runs.

An importer turns the documents of its sources into `CallRow`s, in the order of the file. It counts
what it drops, repairs or assumes in `Tally`; the counts become notes of the trace, so that nothing
is lost silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Protocol

from v4traces.errors import TraceError
from v4traces.rows import CallRow, TraceMetadata
from v4traces.scrub import Scrubber
from v4traces.sources import Document, documents
from v4traces.table import TraceTable
from v4traces.write import TraceWriter

# Called after each document with the number done.
Progress = Callable[[int], None]


@dataclass(slots=True)
class Tally:
    """Counts by sentence; each sentence with a count above zero becomes a note."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, sentence: str, count: int = 1) -> None:
        self.counts[sentence] = self.counts.get(sentence, 0) + count

    def notes(self) -> tuple[str, ...]:
        return tuple(f"{sentence}: {count}" for sentence, count in self.counts.items() if count)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`limit` is the number of root sessions to take; `salt` keys the ids."""

    limit: int | None = None
    salt: str = ""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What one import wrote."""

    path: Path
    table: TraceTable


class Importer(Protocol):
    """One source format. Instances live for one import and may keep state between documents."""

    metadata: TraceMetadata

    def __init__(self, options: ImportOptions, scrub: Scrubber, tally: Tally) -> None: ...

    def rows(self, sources: Iterable[Document]) -> Iterator[CallRow]:
        """The calls of all documents, parents and awaited calls first. Raises `TraceError`."""


def import_trace(
    kind: type[Importer],
    sources: Iterable[Path],
    out: Path,
    options: ImportOptions,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> ImportSummary:
    """Import `sources` into one trace at `out`, whole or not at all."""
    tally = Tally()
    found = _counted(documents(sources), progress)
    first = next(found, None)
    if first is None:
        raise TraceError("no source was named. Name at least one file or folder.")
    # Without a salt of the user's own the first document is one: ids repeat for the same sources, and
    # nobody who lacks them can test a guess against the ids.
    salt = options.salt.encode() if options.salt else blake2b(first.data).digest()
    importer = kind(options, Scrubber(salt), tally)
    with TraceWriter(out, importer.metadata, force=force) as writer:
        writer.append(importer.rows(chain([first], found)))
        writer.metadata = replace(importer.metadata, notes=importer.metadata.notes + tally.notes())
    assert writer.table is not None  # leaving the writer without an error has read it back
    return ImportSummary(out, writer.table)


def _counted(sources: Iterable[Document], progress: Progress | None) -> Iterator[Document]:
    for done, document in enumerate(sources):
        if progress is not None:
            progress(done)
        yield document
