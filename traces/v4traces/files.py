"""Output that appears whole or not at all, and never over something that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from v4traces.errors import TraceError


@contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden path beside `path` to write to; it becomes `path` on a clean exit.

    Raises `TraceError` before anything is written if `path` exists (without `force`) or cannot be
    written. After an exception nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _refuse_overwrite(path, force)
    if not path.parent.is_dir():
        raise TraceError(f"the folder {path.parent} does not exist. Make it, or name another output.")
    try:
        yield partial
        _refuse_overwrite(path, force)
        os.replace(partial, path)
    except OSError as error:
        raise TraceError(
            f"{path} cannot be written ({error.strerror or error}). Check room and permissions."
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _refuse_overwrite(path: Path, force: bool) -> None:
    if path.is_dir():
        raise TraceError(f"{path} is a folder. Name a file to write.")
    if path.exists() and not force:
        raise TraceError(
            f"{path} exists and is not overwritten without --force. Add it, or name another file."
        )
