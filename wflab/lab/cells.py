"""A `%%workflow` cell as ordinary Python: its first line set aside, its directives turned into decorators.

The cell is compiled and run by IPython itself, line for line as it stands, so that top-level `await`, the display of
the last expression, tracebacks, `inspect.getsource` and `%debug` are what they are in any cell.
"""

from __future__ import annotations

import ast
from typing import Any

from wflab.engine.definitions import Step, Workflow

__all__ = ["DIRECTIVES", "MARKER", "DirectiveTransformer", "as_step", "as_workflow", "set_magic_aside"]

MAGIC = "%%workflow"
MARKER = "_wflab_cell"
"""The line magic that stands where the cell magic stood: it reads the options, and marks the cell."""

DIRECTIVES = {"use workflow": "as_workflow", "use step": "as_step"}


def set_magic_aside(lines: list[str]) -> list[str]:
    """Replace the `%%workflow` line of a cell by one line of Python, so that all others keep their numbers."""
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        words = line.split(maxsplit=1)
        if words[0] != MAGIC or line.rstrip().endswith("?"):
            return lines
        options = words[1].strip() if len(words) > 1 else ""
        marked = f"get_ipython().run_line_magic({MARKER!r}, {options!r})\n"
        return [*lines[:number], marked, *lines[number + 1 :]]
    return lines


class DirectiveTransformer(ast.NodeTransformer):
    """Decorates functions whose first statement is a directive, in cells that `%%workflow` has marked."""

    def visit(self, node: ast.AST) -> Any:
        """Only whole cells are given to it; an unmarked one stays as it is."""
        if isinstance(node, ast.Module | ast.Interactive) and not _is_marked(node):
            return node
        return super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """A plain function."""
        return self._decorate(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        """An async function."""
        return self._decorate(node)

    def _decorate(self, node: Any) -> Any:
        self.generic_visit(node)
        decorator = DIRECTIVES.get(_first_text(node))
        if decorator is not None:
            # Outermost: a decorator of the cell's own, `@step(max_retries=5)` among them, comes before it.
            call = ast.parse(f"__import__('wflab.lab.cells').lab.cells.{decorator}", mode="eval").body
            line = node.decorator_list[0] if node.decorator_list else node
            for part in ast.walk(call):
                ast.copy_location(part, line)
            node.decorator_list.insert(0, call)
        return node


def _is_marked(tree: Any) -> bool:
    match tree.body[:1]:
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr="run_line_magic"), args=[ast.Constant(value=name), *_]))]:
            return bool(name == MARKER)
    return False


def _first_text(node: Any) -> str:
    match node.body[:1]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return text.strip()
    return ""


def as_workflow(fn: Any) -> Any:
    """`"use workflow"`: what `@workflow` does, unless the function is one already."""
    return fn if isinstance(fn, Workflow) else Workflow(fn)


def as_step(fn: Any) -> Any:
    """`"use step"`: what `@step` does, unless the function is one already."""
    return fn if isinstance(fn, Step) else Step(fn)
