"""Loading into IPython, and leaving it as it was."""

from __future__ import annotations

from typing import Any

from wflab.lab.cells import DirectiveTransformer, set_magic_aside
from wflab.lab.magics import WorkflowMagics

__all__ = ["load", "unload"]


def load(shell: Any) -> None:
    """Register the magics and teach the shell to read `%%workflow` cells. Twice is once."""
    unload(shell)
    shell.register_magics(WorkflowMagics)
    shell.input_transformers_cleanup.append(set_magic_aside)
    shell.ast_transformers.append(DirectiveTransformer())


def unload(shell: Any) -> None:
    """Undo `load`, as far as IPython allows: its magics stay known."""
    if set_magic_aside in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(set_magic_aside)
    shell.ast_transformers[:] = [item for item in shell.ast_transformers if not isinstance(item, DirectiveTransformer)]
