"""What a section of the page is: a heading, a finding in one or two sentences, figures and tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from v4reports.numbers import GAP
from v4reports.run import Run
from v4reports.tables import Table


@dataclass(frozen=True, slots=True)
class Section:
    """`figures` names entries of `v4reports.figures.FIGURES`; `lists` are headed lists of
    sentences; `folded` tables open on a click."""

    slug: str
    title: str
    lead: str
    figures: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    folded: tuple[Table, ...] = ()
    beside: bool = False

    @property
    def is_beside(self) -> bool:
        """Figures in the left column and tables in the right one, where there is room for two."""
        return self.beside or len(self.figures) == 1


SectionFunction = Callable[[Run], Section | None]


def sentence(text: str) -> str:
    """Upper case at the start unless a name stands there, a full stop at the end; the rest as it is."""
    text = typeset(text)
    first = text.partition(" ")[0]
    start = text[:1].upper() if first.isalpha() else text[:1]
    return start + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def typeset(text: str) -> str:
    """Words of a run as this page sets its own: a number and its per cent sign stay together, apart."""
    return re.sub(r"(?<=\d) ?%", f"{GAP}%", text.strip())
