"""The notebook's magics, in a real IPython shell."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import needs

try:
    from IPython.core.interactiveshell import InteractiveShell
except ImportError:
    InteractiveShell = None  # type: ignore[assignment,misc]

import wflab
from wflab import Run, Step, Workflow


@pytest.fixture(scope="module")
def shell() -> Any:
    needs(InteractiveShell is not None, "IPython: pip install 'wflab[lab]'")
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "wflab")
    return made


@pytest.fixture
def run(shell: Any, url: str) -> Iterator[Callable[[str], Any]]:
    """Run a cell; gives its value, or raises what it raised."""
    lab = wflab.use(url)

    def run_cell(text: str) -> Any:
        result = asyncio.run(
            shell.run_cell_async(text, transformed_cell=shell.transform_cell(text), store_history=True)
        )
        result.raise_error()
        return result.result

    yield run_cell
    asyncio.run(lab.shutdown())


CELL = '''%%workflow
rate = 2

def helper(x):
    return x * rate

async def double(x):
    "use step"
    return helper(x)

def triple(x):
    """use step"""
    return 3 * x

async def both(x):
    "use workflow"
    return [await double(x), await triple(x)]

run = await start(both, [5])
await run.return_value()
'''


def test_a_cell_is_ordinary_python_with_directives(run: Callable[[str], Any], shell: Any) -> None:
    run("from wflab import *")
    assert run(CELL) == [10, 15]
    space = shell.user_ns
    assert isinstance(space["double"], Step)
    assert isinstance(space["triple"], Step)
    assert isinstance(space["both"], Workflow)
    assert isinstance(space["run"], Run)
    assert space["rate"] == 2
    assert not isinstance(space["helper"], Step | Workflow)


def test_the_source_of_a_function_is_the_cells_own_text(run: Callable[[str], Any], shell: Any) -> None:
    run("from wflab import *")
    run(CELL)
    double = shell.user_ns["double"]
    assert inspect.getsource(double) == 'async def double(x):\n    "use step"\n    return helper(x)\n'
    assert double.source.source == inspect.getsource(double)
    assert inspect.getsourcelines(double)[1] == 7


def test_a_traceback_shows_the_cells_own_lines(run: Callable[[str], Any], shell: Any) -> None:
    with pytest.raises(ZeroDivisionError) as failed:
        run("%%workflow\n\nx = 1\n\nx / 0\n")
    frame = failed.traceback[-1]
    assert frame.lineno + 1 == 5
    assert "x / 0" in str(frame.statement)


def test_running_a_cell_again_makes_a_new_version_and_open_runs_keep_theirs(
    run: Callable[[str], Any], shell: Any
) -> None:  # R12
    run("from wflab import *")
    cell = '%%workflow\nasync def waits():\n    "use workflow"\n    return [{}, await create_hook("go")]\n'
    run(cell.format(1))
    first = shell.user_ns["waits"]
    run("old = await start(waits)")
    run(cell.format(2))
    assert shell.user_ns["waits"].version != first.version
    assert shell.user_ns["waits"].key == first.key
    run("import asyncio\nwhile await old.status() != 'running': await asyncio.sleep(0)")
    run(
        "while True:\n    try:\n        await resume_hook('go', 'x'); break\n"
        "    except HookNotFoundError: await asyncio.sleep(0.001)"
    )
    assert run("await old.return_value(timeout=10)") == [1, "x"]


def test_other_cells_are_left_alone(run: Callable[[str], Any], shell: Any) -> None:
    run('async def plain():\n    "use step"\n    return 1\n')
    assert not isinstance(shell.user_ns["plain"], Step)
    run('%%workflow\nclass Box:\n    async def method(self):\n        "not a directive"\n        return 1\n')
    assert inspect.iscoroutinefunction(shell.user_ns["Box"].method)


def test_a_decorator_and_a_directive_go_together(run: Callable[[str], Any], shell: Any) -> None:
    run("from wflab import *")
    run('%%workflow\n@step(max_retries=7)\nasync def careful():\n    "use step"\n')
    assert shell.user_ns["careful"].max_retries == 7


def test_a_plain_function_cant_be_a_workflow(run: Callable[[str], Any]) -> None:
    with pytest.raises(TypeError, match="async def nope"):
        run('%%workflow\ndef nope():\n    "use workflow"\n')


def test_the_magic_has_help_and_options(run: Callable[[str], Any], shell: Any, tmp_path: Any) -> None:
    assert "use workflow" in shell.magics_manager.magics["cell"]["workflow"].__doc__
    run(f"%%workflow --use sqlite:///{tmp_path}/other.db\nvalue = 1")
    assert wflab.current_lab().world.url.endswith("other.db")
    shell.run_cell_magic("workflow", "", "value = 2")
    assert shell.user_ns["value"] == 2


def test_wf_looks_at_runs_and_acts_on_them(run: Callable[[str], Any], shell: Any, capsys: Any) -> None:
    run("from wflab import *")
    run('%%workflow\nasync def waits(token):\n    "use workflow"\n    return await create_hook(token)\n')
    run(
        "one = await start(waits, ['order 1'], hook=StartHook('order 1'))\n"
        "two = await start(waits, ['b'], hook=StartHook('b'))"
    )
    assert len(run("%wf runs")) == 2
    assert len(run("%wf runs completed")) == 0
    info = run('%wf resume \'order 1\' {"note": [1, {"deep": true}]}')
    assert info.token == "order 1"
    assert run("await one.return_value(timeout=10)") == {"note": [1, {"deep": True}]}
    run("payload = {1, 2}")
    run("%wf resume b payload")
    assert run("await two.return_value(timeout=10)") == {1, 2}
    run("three = await start(waits, ['c'], hook=StartHook('c'))")
    run("%wf cancel three not needed")
    assert run("await three.status()") == "cancelled"
    run(f"%wf show {shell.user_ns['one'].run_id}")
    run(f"%wf show {shell.user_ns['one'].run_id[-8:]}")
    assert "completed" in capsys.readouterr().out
    assert len(run("%wf hooks")) == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%wf", "resume TOKEN"),
        ("%wf dance", "no such command"),
        ("%wf show nobody", "no run"),
        ("%wf resume nobody 1", "no open hook"),
        ("%wf resume t not json", "needs quotes"),
        ("%wf resume", "TOKEN"),
        ("%wf use", "URL"),
        ("%wf cancel wrun_none", "no run"),
    ],
)
def test_wf_says_what_is_wrong(run: Callable[[str], Any], line: str, told: str) -> None:
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match=told):
        run(line)


def test_unloading_leaves_the_shell_as_it_was(shell: Any) -> None:
    shell.run_line_magic("unload_ext", "wflab")
    assert shell.transform_cell("%%workflow\nx = 1").startswith("get_ipython().run_cell_magic('workflow'")
    shell.run_line_magic("load_ext", "wflab")
    shell.run_line_magic("reload_ext", "wflab")
    assert shell.transform_cell("%%workflow\nx = 1").count("_wflab_cell") == 1
