"""The `v4calib` command: the one place that turns an error into words on stderr and an exit code.

Exit codes: 0 good · 1 `check` found residuals above the goal, `diff` a difference, `doctor` no device · 2 bad
input · 130 interrupted. What a
subcommand does is in `v4calib.commands`. Nothing heavy is imported here.
"""

from __future__ import annotations

import sys

import typer

from v4calib.commands import build_app
from v4calib.errors import Interrupted, V4Error

BAD_INPUT, INTERRUPTED = 2, 130


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code."""
    try:
        returned = build_app()(args=argv, prog_name="v4calib", standalone_mode=False)
        sys.stdout.flush()
        return int(returned or 0)
    except V4Error as error:
        return _fail(str(error), BAD_INPUT)
    except typer.TyperException as error:
        return _fail(_usage(error), BAD_INPUT)
    except BrokenPipeError:
        sys.stdout = None  # nobody reads any more; no second flush at exit
        return 0
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _fail(f"{name}{error.strerror or error}. Check that it exists and may be used.", BAD_INPUT)
    except Interrupted as stopped:
        return _fail(str(stopped), INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; nothing was written", INTERRUPTED)


def _fail(message: str, code: int) -> int:
    print(f"v4calib: {message}", file=sys.stderr)
    return code


def _usage(error: typer.TyperException) -> str:
    """A wrong option or argument, in the same one paragraph as any other bad input."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "v4calib"
    return f"{text.rstrip('.')}. `{command} --help` lists what it takes."


if __name__ == "__main__":
    sys.exit(main())
