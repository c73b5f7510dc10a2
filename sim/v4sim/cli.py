"""The `v4sim` command: the one place that turns an error into words on stderr and an exit code.

Exit codes: 0 good · 1 no feasible answer (the run ended and no call was served) · 2 bad input ·
3 a law of the simulation was broken (a defect of v4sim) · 130 interrupted · 143 terminated.

What a subcommand does is in `v4sim.commands`. Nothing heavy is imported here: `v4sim --help` loads
typer, and each subcommand loads the rest when it runs.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from v4sim.commands import build_app
from v4sim.errors import LawError, V4Error

BAD_INPUT, BROKEN_LAW, INTERRUPTED, TERMINATED = 2, 3, 130, 143
STOPPED = "stopped; nothing was written"


class _Terminated(BaseException):
    """SIGTERM arrived. Raised where the program stands, so that half-written files are removed."""


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
    try:
        with _sigterm_unwinds():
            code = int(build_app()(args=argv, prog_name="v4sim", standalone_mode=False) or 0)
            sys.stdout.flush()
        # typer turns Ctrl-C into this code, and says nothing.
        return _fail(STOPPED, code) if code == INTERRUPTED else code
    except LawError as error:
        return _fail(str(error), BROKEN_LAW)
    except V4Error as error:
        return _fail(str(error), BAD_INPUT)
    except typer.TyperException as error:
        return _fail(_usage(error), BAD_INPUT)
    except BrokenPipeError:
        # The reader of stdout went away (`v4sim presets | head -1`): nobody is left to tell. Without a
        # stdout the interpreter does not try to flush it again, and fail, at exit.
        sys.stdout = None
        return 0
    except OSError as error:
        return _fail(_system(error), BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(STOPPED, INTERRUPTED)
    except _Terminated:
        return _fail(STOPPED, TERMINATED)


def _fail(message: str, code: int) -> int:
    print(f"v4sim: {message}", file=sys.stderr)
    return code


def _usage(error: typer.TyperException) -> str:
    """A wrong option or argument, in the same one paragraph as any other bad input."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "v4sim"
    return f"{text.rstrip('.')}. `{command} --help` lists what it takes."


def _system(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}. Check that the path exists, may be used, and has room."


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


if __name__ == "__main__":
    sys.exit(main())
