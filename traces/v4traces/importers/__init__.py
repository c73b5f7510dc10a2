"""Importers by the name of their source format. To add one: a module here and a line below."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from v4traces.errors import TraceError
from v4traces.importers.base import Importer

_IMPORTERS = {
    "mooncake": ("v4traces.importers.mooncake", "MooncakeImporter"),
    "weka": ("v4traces.importers.weka", "WekaImporter"),
}


def importer_names() -> tuple[str, ...]:
    return tuple(sorted(_IMPORTERS))


def importer(name: str) -> type[Importer]:
    """The importer class for a source format."""
    if name not in _IMPORTERS:
        raise TraceError(
            f"there is no importer {name!r}; the source formats are {', '.join(importer_names())}."
        )
    module, attribute = _IMPORTERS[name]
    return cast("type[Importer]", getattr(import_module(module), attribute))
