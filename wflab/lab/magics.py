"""`%%workflow` and `%wf`: the notebook's way in. Parsing and display only; the work is in `wflab.api`."""

from __future__ import annotations

import ast
import io
import json
import shlex
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from wflab.api import Run, current_lab, run_sync, use
from wflab.errors import WorkflowError
from wflab.lab.cells import MARKER

__all__ = ["WorkflowMagics"]

_USAGE = """%wf runs [STATUS]           the runs, newest first
%wf show RUN                one run
%wf resume TOKEN [PAYLOAD]  deliver a payload: JSON, a Python literal, or the name of a variable
%wf cancel RUN [REASON]     end a run
%wf hooks                   the hook tokens
%wf use URL                 choose the database

RUN is a run id, the end of one, or the name of a variable."""


@magics_class
class WorkflowMagics(Magics):
    """The magics of `%load_ext wflab`."""

    shell: Any

    @magic_arguments()
    @argument("--use", metavar="URL", help="choose this database first, as `%%wf use URL` does")
    @cell_magic
    def workflow(self, line: str, cell: str) -> None:
        """Define workflows and steps in this cell.

        The cell is ordinary Python. A function whose first statement is "use workflow" or "use step" becomes one.
        """
        # Reached only when the magic is called from code: a cell that begins with it is set aside before (`cells`).
        result = self.shell.run_cell(f"%%workflow {line}\n{cell}")
        result.raise_error()

    @line_magic(MARKER)  # type: ignore[arg-type]
    def begin_cell(self, line: str) -> None:
        """Read the options of a `%%workflow` line, which this stands for."""
        options = parse_argstring(self.workflow, line)
        if options.use:
            use(options.use)

    @no_var_expand
    @line_magic
    def wf(self, line: str) -> Any:
        """Look at runs and act on them: `%wf runs`, `show`, `resume`, `cancel`, `hooks`, `use`."""
        command, _, rest = line.strip().partition(" ")
        act = getattr(self, f"_wf_{command}", None) if command.isidentifier() else None
        if act is None:
            raise UsageError(f"%wf {command}: no such command\n\n{_USAGE}" if command else _USAGE)
        try:
            return act(rest.strip())
        except WorkflowError as error:
            raise UsageError(str(error)) from error

    def _wf_runs(self, rest: str) -> Any:
        return current_lab().runs(status=rest or None)

    def _wf_hooks(self, _rest: str) -> Any:
        return current_lab().hooks()

    def _wf_show(self, rest: str) -> None:
        display(self._run(rest))

    def _wf_resume(self, rest: str) -> Any:
        token, payload = _first_word(rest)
        if not token:
            raise UsageError("%wf resume TOKEN [PAYLOAD]")
        return run_sync(current_lab().resume_hook(token, self._payload(payload)))

    def _wf_cancel(self, rest: str) -> None:
        name, reason = _first_word(rest)
        run = self._run(name)
        run_sync(run.cancel(reason or None))
        display(run)

    def _wf_use(self, rest: str) -> Any:
        if not rest:
            raise UsageError("%wf use URL, for example sqlite:///orders.db")
        return use(rest)

    def _run(self, text: str) -> Run[Any]:
        named = self.shell.user_ns.get(text)
        if isinstance(named, Run):
            return named
        lab = current_lab()
        if text and run_sync(lab.get_run(text).exists()):
            return lab.get_run(text)
        fit = [run for run in lab.runs(limit=10_000) if text and run.run_id.endswith(text.upper())]
        if len(fit) != 1:
            found = "no run" if not fit else f"{len(fit)} runs"
            raise UsageError(f"{found} for {text!r}: give a run id, the end of one, or the name of a variable")
        found_run: Run[Any] = fit[0]
        return found_run

    def _payload(self, text: str) -> Any:
        if not text:
            return None
        if text.isidentifier() and text in self.shell.user_ns:
            return self.shell.user_ns[text]
        try:
            return json.loads(text)
        except ValueError:
            pass
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            reason = "is neither JSON nor a Python literal nor the name of a variable"
            raise UsageError(f"{text!r} {reason}; a text needs quotes") from error


def _first_word(text: str) -> tuple[str, str]:
    """The first word, which may be quoted, and the rest as it stands."""
    rest = io.StringIO(text)
    lexer = shlex.shlex(rest, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        word = lexer.get_token() or ""
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from error
    return word, rest.read().strip()
