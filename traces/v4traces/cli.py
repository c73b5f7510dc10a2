"""The `v4traces` command: the one place that turns an error into words on stderr and an exit code.

Exit codes: 0 good · 2 bad input or a broken law · 130 interrupted · 143 terminated. What a subcommand
does is in `v4traces.commands`. Nothing heavy is imported here, so that `--help` is quick.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from v4traces.commands import build_app
from v4traces.errors import V4Error

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143
_STOPPED = "stopped; nothing was written"


class _Terminated(BaseException):
    """SIGTERM arrived. Raised where the program stands, so that half-written files are removed."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code."""
    try:
        with _sigterm_unwinds():
            code = int(build_app()(args=argv, prog_name="v4traces", standalone_mode=False) or 0)
            sys.stdout.flush()
        # typer turns Ctrl-C into this code, and says nothing.
        return _fail(_STOPPED, code) if code == INTERRUPTED else code
    except V4Error as error:
        return _fail(str(error), BAD_INPUT)
    except typer.TyperException as error:
        return _fail(_usage(error), BAD_INPUT)
    except (BrokenPipeError, SystemExit):
        # The reader of stdout went away (typer makes that an exit): nobody is left to tell, and a flush
        # when the interpreter ends would fail again.
        sys.stdout = None
        return 0
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _fail(
            f"{name}{error.strerror or error}. Check that it exists, may be used, and has room.", BAD_INPUT
        )
    except (KeyboardInterrupt, typer.Abort):
        return _fail(_STOPPED, INTERRUPTED)
    except _Terminated:
        return _fail(_STOPPED, TERMINATED)


def _fail(message: str, code: int) -> int:
    print(f"v4traces: {message}", file=sys.stderr)
    return code


def _usage(error: typer.TyperException) -> str:
    """A wrong option or argument, in the same one paragraph as any other bad input."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "v4traces"
    return f"{text.rstrip('.')}. `{command} --help` lists what it takes."


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
