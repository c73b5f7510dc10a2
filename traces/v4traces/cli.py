"""The `v4traces` command.

Exit codes: 0 good · 2 bad input or a broken law · 130 interrupted · 143 terminated. What a subcommand
does is in `v4traces.commands`. Nothing heavy is imported here, so that `--help` is quick.
"""

from __future__ import annotations

import sys

from v4traces.commands import build_app
from v4traces.commands.entry import run_command


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code."""
    return run_command("v4traces", build_app, argv)


if __name__ == "__main__":
    sys.exit(main())
