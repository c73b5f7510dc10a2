"""In which form the program runs: compiled (`V4SIM_COMPILE=1`, mypyc) or interpreted.

Where the best way differs there are both, with the same results: numpy's calls over whole arrays for the
interpreter, loops over flat vectors for compiled code.
"""

from __future__ import annotations

from typing import Final

COMPILED: Final = not __file__.endswith((".py", ".pyc"))
