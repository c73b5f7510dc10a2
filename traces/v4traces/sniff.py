"""Tells what a file really is when it is not what its name says.

Public traces lie behind git-LFS and redirects, so the usual broken input is a three-line pointer file
or a web page saved under the name of a trace. Both get a message of their own.
"""

from __future__ import annotations

from v4traces.errors import TraceError

_LFS = b"version https://git-lfs.github.com/spec/"
_HTML = (b"<!doctype html", b"<html", b"<?xml", b"<head")


def refuse_impostor(head: bytes, name: str) -> None:
    """Raise `TraceError` if `head`, the first bytes of file `name`, is an LFS pointer or a web page."""
    if head.startswith(_LFS):
        raise TraceError(
            f"{name} is a git-LFS pointer, not the trace itself. Fetch the content with `git lfs pull`"
            " or download the raw file."
        )
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if start.startswith(_HTML):
        raise TraceError(
            f"{name} is a web page, not a trace: the download saved an error or redirect page. Download"
            " the raw file and follow redirects (`curl -L`)."
        )
    if not head:
        raise TraceError(f"{name} is empty. A trace has at least one call; fetch or export it again.")
