"""Reports of v4sim: one offline HTML file per run, one for two runs side by side, one for a backtest.

`render`, `compare` and `backtest` are the whole public face. matplotlib and jinja2 are loaded when one of
them is called.
"""

from __future__ import annotations

from v4reports.backtest import backtest
from v4reports.compare import compare
from v4reports.render import render

__all__ = ["backtest", "compare", "render"]
