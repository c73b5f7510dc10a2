"""Writing a page: whole or not at all, and never over a file that is there unless asked."""

from __future__ import annotations

import os
from pathlib import Path

from v4sim.errors import RunError


def check_free(path: Path, *, force: bool) -> None:
    """Refuse before the work is done, not after."""
    if path.is_dir():
        raise RunError(f"{path} is a directory; name the HTML file to write.")
    if path.exists() and not force:
        raise RunError(f"{path} already exists and is not overwritten without --force.")
    if not path.parent.is_dir():
        raise RunError(f"{path}: its directory does not exist; make {path.parent} first.")


def write_page(path: Path, html: str, *, force: bool) -> None:
    """Write beside the target and rename: a reader never sees half a page."""
    check_free(path, force=force)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write(html)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
