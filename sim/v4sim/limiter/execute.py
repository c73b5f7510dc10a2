"""The same function over many arguments, on one process or several; results in the order of the arguments."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def run_all(
    function: Callable[[Argument], Result],
    arguments: Sequence[Argument],
    jobs: int,
    done: Callable[[], None],
) -> list[Result]:
    """`function` of each argument; `done` is called as often as one is ready.

    With several jobs, function, arguments and results must be picklable. Processes are started anew, since a
    fork would take the threads of libraries along.
    """
    if jobs == 1 or len(arguments) < 2:
        results = []
        for argument in arguments:
            results.append(function(argument))
            done()
        return results
    pool = ProcessPoolExecutor(min(jobs, len(arguments)), multiprocessing.get_context("spawn"))
    try:
        futures = [pool.submit(function, argument) for argument in arguments]
        for _ in as_completed(futures):
            done()
        return [future.result() for future in futures]
    finally:
        # Also when something went wrong or the user left: nothing that has not begun is begun.
        pool.shutdown(wait=True, cancel_futures=True)
