"""The `v4sim` command.

Exit codes: 0 good · 1 no feasible answer (the run ended and no call was served) · 2 bad input ·
3 a law of the simulation was broken (a defect of v4sim) · 130 interrupted · 143 terminated.

What a subcommand does is in `v4sim.commands`. Nothing heavy is imported here: `v4sim --help` loads
typer, and each subcommand loads the rest when it runs.
"""

from __future__ import annotations

import gc
import sys

from v4sim.commands import build_app
from v4sim.errors import LawError
from v4traces.commands.entry import run_command

BROKEN_LAW = 3


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code."""
    if argv is not None:
        return _run(argv)
    # A process that runs one command: its cycles, hardly any, end with it (commands that simulate again
    # and again collect them), and at exit nobody need look for them.
    gc.disable()
    code = _run(None)
    gc.freeze()
    return code


def _run(argv: list[str] | None) -> int:
    return run_command("v4sim", build_app, argv, codes={LawError: BROKEN_LAW})


if __name__ == "__main__":
    sys.exit(main())
