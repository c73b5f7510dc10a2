"""Build hook: the hot modules of the simulator become extension modules while a wheel is built.

Off unless asked for (`V4SIM_COMPILE=1 pip install .`), since it needs a C compiler and a minute. mypyc
compiles the same typed sources that the interpreter runs, so both give the same bytes; the sources
stay in the wheel, for tracebacks. An editable install is never compiled: edits would not be seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASKED_FOR = "V4SIM_COMPILE"
SOURCE_ROOTS = ("traces", "sim")
# No flag may let a compiler change a float: -ffp-contract=off keeps a·b + c two roundings, as in Python.
SETUP = """
from setuptools import setup
from mypyc.build import mypycify
setup(
    name="v4sim",
    packages=[],
    ext_modules=mypycify(
        {arguments!r}, opt_level="3", debug_level="0", group_name="v4sim", target_dir={target!r}
    ),
)
"""


class CompileHook(BuildHookInterface[Any]):
    """Compiles what `modules` in pyproject.toml lists."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get(ASKED_FOR, "0") in ("", "0"):
            return
        self._folder = tempfile.TemporaryDirectory(prefix="v4sim-compile-")
        scratch = Path(self._folder.name)
        for library in self._compile(scratch):
            build_data["force_include"][str(library)] = library.relative_to(scratch / "lib").as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        # What compiled modules call at run time: no older than what they were made with.
        build_data["dependencies"].append(f"librt>={installed('librt')}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if build_data["pure_python"] is False:
            self._folder.cleanup()

    def _compile(self, scratch: Path) -> list[Path]:
        root = Path(self.root)
        sources = [str(root / module) for module in self.config["modules"]]
        arguments = [
            "--ignore-missing-imports",
            "--follow-imports=silent",
            "--explicit-package-bases",
            "--config-file=",
            *sources,
        ]
        setup = scratch / "setup.py"
        setup.write_text(SETUP.format(arguments=arguments, target=str(scratch / "c")))
        command = [sys.executable, "setup.py", "build_ext", "--build-lib", "lib", "--build-temp", "tmp"]
        paths = os.pathsep.join(str(root / folder) for folder in SOURCE_ROOTS)
        flags = ["-ffp-contract=off"]
        links = []
        if sys.platform == "linux":  # calls between the modules need no detour for someone to come between
            flags += ["-fno-plt", "-fno-semantic-interposition"]
            links.append("-Wl,-Bsymbolic")
        ended = subprocess.run(
            command,
            cwd=scratch,
            env={
                **os.environ,
                "MYPYPATH": paths,
                "CFLAGS": " ".join([os.environ.get("CFLAGS", ""), *flags]).strip(),
                "LDFLAGS": " ".join([os.environ.get("LDFLAGS", ""), *links]).strip(),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(
                f"{ASKED_FOR}=1, and the modules were not compiled: it needs a C compiler and Python.h. "
                f"Without {ASKED_FOR} the same program installs uncompiled. {ended.stdout[-4000:]}"
            )
        return sorted((scratch / "lib").rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))
