"""The `v4calib` command.

Exit codes: 0 good · 1 `check` found residuals above the goal, `diff` a difference, `doctor` no device · 2 bad
input · 130 interrupted · 143 terminated. What a subcommand does is in `v4calib.commands`. Nothing heavy is
imported here.
"""

from __future__ import annotations

import sys

from v4calib.commands import build_app
from v4calib.errors import Interrupted
from v4traces.commands.entry import INTERRUPTED, run_command


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code."""
    return run_command("v4calib", build_app, argv, codes={Interrupted: INTERRUPTED})


if __name__ == "__main__":
    sys.exit(main())
