"""The subcommands of `v4traces`, a module each: options and words here, all work in the library.

To add one: write `commands/<name>.py` with a function whose docstring is its help text, and name it
in `build_app`. Such a module imports typer and the standard library at its top, and everything else
inside the function, because `v4traces --help` loads them all.
"""

from __future__ import annotations

import typer

from v4traces.commands.check import check
from v4traces.commands.export import export
from v4traces.commands.importing import import_
from v4traces.commands.stats import stats
from v4traces.commands.synth import synth

__all__ = ["build_app"]


def build_app() -> typer.Typer:
    app = typer.Typer(
        help="Make, check and describe traces of coding-agent traffic.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: it starts in half the time and reads the same in a pipe
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("import")(import_)
    app.command()(check)
    app.command()(stats)
    app.command()(synth)
    app.command()(export)
    return app
