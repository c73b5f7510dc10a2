"""Errors of calibration; the tree is described in `v4traces.errors`."""

from __future__ import annotations

from v4traces.errors import V4Error


class CalibError(V4Error):
    """A measurement or an import cannot be made."""


class Interrupted(Exception):
    """A run was stopped by its user; the message says what is kept."""


__all__ = ["CalibError", "Interrupted", "V4Error"]
