"""How a program of this project runs a command line: errors become one paragraph on stderr and an exit code.

Shared by `v4traces`, `v4sim` and `v4calib`, whose `cli.main` say which errors of their own have codes beside
these: 0 good · 2 bad input · 130 interrupted · 143 terminated.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import typer

from v4traces.errors import V4Error

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143
STOPPED = "stopped; nothing was written"


class _Terminated(BaseException):
    """SIGTERM arrived. Raised where the program stands, so that half-written files are removed."""


def run_command(
    program: str,
    build_app: Callable[[], typer.Typer],
    argv: list[str] | None,
    *,
    codes: Mapping[type[Exception], int] | None = None,
) -> int:
    """Run the command line `argv` (None: the process's own) and return the exit code.

    `codes` are exit codes of errors whose message is for the user; any other `V4Error` is bad input.
    """

    def fail(message: str, code: int) -> int:
        print(f"{program}: {message}", file=sys.stderr)
        return code

    special = dict(codes or {})
    try:
        with _sigterm_unwinds():
            code = int(build_app()(args=argv, prog_name=program, standalone_mode=False) or 0)
            sys.stdout.flush()
        # typer turns Ctrl-C into this code, and says nothing.
        return fail(STOPPED, code) if code == INTERRUPTED else code
    except tuple(special) as error:
        return fail(str(error), next(code for kind, code in special.items() if isinstance(error, kind)))
    except V4Error as error:
        return fail(str(error), BAD_INPUT)
    except typer.TyperException as error:
        if _is_help(error):  # a program or group of commands that was named alone
            print(error.format_message(), file=sys.stderr)
            return BAD_INPUT
        return fail(_usage(error, program), BAD_INPUT)
    except (BrokenPipeError, SystemExit):
        # The reader of stdout went away (`v4sim presets | head -1`, which typer may make an exit): nobody is
        # left to tell. Without a stdout the interpreter does not try to flush it again, and fail, at its end.
        sys.stdout = None
        return 0
    except OSError as error:
        return fail(_system(error), BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return fail(STOPPED, INTERRUPTED)
    except _Terminated:
        return fail(STOPPED, TERMINATED)


def _is_help(error: typer.TyperException) -> bool:
    context = getattr(error, "ctx", None)
    return context is not None and error.format_message() == context.get_help()


def _usage(error: typer.TyperException, program: str) -> str:
    """A wrong option or argument, in the same one paragraph as any other bad input."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    return f"{text.rstrip('.')}. `{command} --help` lists what it takes."


def _system(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}. Check that it exists, may be used, and has room."


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM raise inside the block, as Ctrl-C does, so that clean-up code runs."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach only the main thread; a caller elsewhere keeps its own handling
        return

    def terminate(_signum: int, _frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
