"""Reports of v4sim runs: one offline HTML file per run, or one for two runs side by side.

`render` and `compare` are the whole public face. matplotlib and jinja2 are loaded when one of them is called.
"""

from __future__ import annotations

from v4reports.compare import compare
from v4reports.render import render

__all__ = ["compare", "render"]
