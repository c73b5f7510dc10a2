"""The layers of the project: who may import whom, and what a library may not do. Read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PACKAGES = {
    "v4traces": "traces/v4traces",
    "v4sim": "sim/v4sim",
    "v4kernels": "kernels/v4kernels",
    "v4calib": "calib/v4calib",
    "v4reports": "reports/v4reports",
}
MAY_IMPORT: dict[str, set[str]] = {
    "v4traces": set(),
    "v4sim": {"v4traces"},
    "v4kernels": set(),
    "v4calib": {"v4traces", "v4sim", "v4kernels"},
    "v4reports": {"v4traces", "v4sim"},
}
GPU_LIBRARIES = {"torch", "triton", "pynvml", "cupy"}
HEAVY = {"typer", "rich", "pydantic", "pandas", "matplotlib", "jinja2", "scipy", "ray"}


def sources(package: str) -> list[Path]:
    return sorted((REPO / PACKAGES[package]).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Full dotted names of every import in `tree`, wherever it stands, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def at_import_time(tree: ast.Module) -> ast.Module:
    """What runs when the module is imported: no function bodies, no `if TYPE_CHECKING:` blocks."""

    class Prune(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
            node.body = [ast.Pass()]
            return node

        def visit_If(self, node: ast.If) -> ast.AST:
            if "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = [ast.Pass()]
            return self.generic_visit(node)

    return ast.fix_missing_locations(Prune().visit(tree))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(REPO)}:{line}"


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_package_imports_only_those_below_it(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    # The command layer of v4sim calls the report, and only from inside a function: see the next test.
    broken = [
        f"{where(path, line)} imports {name}"
        for path in sources(package)
        for name, line in imports(parse(path))
        if (root := name.split(".")[0]) in PACKAGES
        and root not in allowed
        and not (root == "v4reports" and "v4sim/commands" in path.as_posix())
    ]
    assert broken == []


def test_the_simulator_loads_the_report_only_when_it_is_asked_for() -> None:
    broken = [
        f"{where(path, line)} imports {name}"
        for path in sources("v4sim")
        for name, line in imports(at_import_time(parse(path)))
        if name.split(".")[0] == "v4reports"
    ]
    assert broken == []


@pytest.mark.parametrize("package", ["v4traces", "v4sim", "v4reports"])
def test_no_gpu_library_reaches_the_simulator(package: str) -> None:
    broken = [
        f"{where(path, line)} imports {name}"
        for path in sources(package)
        for name, line in imports(parse(path))
        if name.split(".")[0] in GPU_LIBRARIES
    ]
    assert broken == []


def test_the_profile_format_is_written_with_the_standard_library_and_numpy_alone() -> None:
    """GPU images write profiles, and they hold none of the simulator's other dependencies."""
    format_module = REPO / "sim/v4sim/cost/profile.py"
    outside = {name.split(".")[0] for name, _ in imports(parse(format_module))} & (
        HEAVY | GPU_LIBRARIES | {"pyarrow", "simpy"}
    )
    assert outside == set()


def is_command_line(path: Path) -> bool:
    """Command lines may print; so may a module that is also a small program (`python -m`)."""
    named = path.name in {"cli.py", "__main__.py"} or "commands" in path.parts
    return named or 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_libraries_neither_print_nor_exit(package: str) -> None:
    broken = []
    for path in sources(package):
        if is_command_line(path):
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "exit", "quit", "sys.exit"}:
                broken.append(f"{where(path, node.lineno)} calls {ast.unparse(node.func)}")
    assert broken == []


def test_the_rules_catch_a_lazy_import_and_spare_a_typing_import() -> None:
    lazy = ast.parse("def f():\n    import torch\n")
    assert [name for name, _ in imports(lazy)] == ["torch"]
    typing_only = ast.parse("if TYPE_CHECKING:\n    import v4reports\nelse:\n    import json\n")
    assert [name for name, _ in imports(at_import_time(typing_only))] == ["json"]
