"""The subcommands of `v4sim`, a module each: options and words here, all simulation below.

To add one: write `commands/<name>.py` with a function whose docstring is its help text and whose
parameters are its options, and name it in `build_app`. Such a module imports typer and the standard
library at its top, and everything else inside the function, because `v4sim --help` loads them all.
"""

from __future__ import annotations

from typing import Annotated

import typer

from v4sim import __version__
from v4sim.commands.backtest import backtest
from v4sim.commands.compare import compare
from v4sim.commands.export import export
from v4sim.commands.limiter import limiter
from v4sim.commands.observe import observe
from v4sim.commands.presets import presets
from v4sim.commands.replay import replay
from v4sim.commands.report import report
from v4sim.commands.show import show
from v4sim.form import COMPILED

__all__ = ["build_app"]


def build_app() -> typer.Typer:
    app = typer.Typer(
        help="Replay agent traces on simulated DeepSeek-V4 serving: what fits, limits, and costs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: it starts in half the time and reads the same in a pipe
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in (replay, limiter, compare, report, export, show, presets, backtest, observe):
        app.command()(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"v4sim {__version__}{' (compiled)' if COMPILED else ''}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of `v4sim` itself."""
