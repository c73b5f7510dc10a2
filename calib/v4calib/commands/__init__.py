"""The subcommands of `v4calib`, a module each: options and words here, all work in the library.

Such a module imports typer and the standard library at its top and everything else inside the
function, because `v4calib --help` loads them all.
"""

from __future__ import annotations

import typer

from v4calib.commands.check import check
from v4calib.commands.diff import diff
from v4calib.commands.doctor import doctor
from v4calib.commands.fit import fit
from v4calib.commands.importing import aiconfigurator
from v4calib.commands.merge import merge
from v4calib.commands.plan import plan
from v4calib.commands.run import run
from v4calib.commands.show import show
from v4calib.commands.verify import verify

__all__ = ["build_app"]


def build_app() -> typer.Typer:
    options = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        help="Measure this GPU, and make, check and compare calibration profiles.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=options,
    )
    importers = typer.Typer(
        help="Profiles from kernel tables that somebody published.",
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=options,
    )
    importers.command("aiconfigurator")(aiconfigurator)
    app.add_typer(importers, name="import")
    for command in (doctor, verify, plan, run, fit, check, show, diff, merge):
        app.command()(command)
    return app
