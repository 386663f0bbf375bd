"""The package as a whole: what it imports, how it is laid out, what it promises."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import wflab
from tests.conftest import needs

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "wflab").rglob("*.py"))
OURS = ["ls-files", "--cached", "--others", "--exclude-standard"]
EXTRAS = ("IPython", "anywidget", "ipywidgets", "jupyterlab", "numpy", "pandas", "psycopg", "stripe")


def run(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


def files() -> list[Path]:
    """What the repository holds, new files included and ignored ones not."""
    listed = subprocess.run(["git", *OURS], cwd=ROOT, capture_output=True, text=True, check=False)
    needs(listed.returncode == 0, "a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_importing_wflab_loads_no_database_and_no_notebook() -> None:
    code = "import sys, wflab; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", code).stdout.split())
    assert "wflab" in loaded
    assert not loaded & {"sqlmodel", "sqlalchemy", "alembic", "pydantic", "typer", "rich", *EXTRAS}


def test_a_run_needs_none_of_the_extras(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))  # None: importing it raises ImportError
import wflab

@wflab.step
async def double(number: int) -> int:
    return 2 * number

@wflab.workflow
async def doubles(number: int) -> int:
    return await double(number)

async def main() -> None:
    async with wflab.Lab({f"sqlite:///{tmp_path / 'wflab.db'}"!r}) as lab:
        run = await lab.start(doubles, [21])
        print(await run.return_value(timeout=30))
        repr(run), run._repr_html_(), lab.runs()._repr_html_()

asyncio.run(main())
"""
    (tmp_path / "script.py").write_text(code)
    told = run(sys.executable, str(tmp_path / "script.py"), env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (told.stdout, told.stderr) == ("42\n", "")


def test_importing_wflab_takes_at_most_0_3_seconds() -> None:
    code = "import time; began = time.perf_counter(); import wflab; print(time.perf_counter() - began)"
    times = [float(run(sys.executable, "-c", code).stdout) for _ in range(5)]
    assert min(times) <= 0.3


def test_the_layers_hold() -> None:
    checked = run("lint-imports", "--no-cache", env={**os.environ, "PATH": _path()})
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_lint_and_format_are_clean() -> None:
    for command in (["check"], ["format", "--check"]):
        checked = run(sys.executable, "-m", "ruff", *command, "--no-cache", ".")
        assert checked.returncode == 0, checked.stdout


def test_types_are_strict() -> None:
    checked = run(sys.executable, "-m", "mypy", "--no-error-summary", "wflab")
    assert checked.returncode == 0, checked.stdout


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_and_says_what_it_is_for(module: Path) -> None:
    text = module.read_text()
    assert text.count("\n") <= 400
    assert (ast.get_docstring(ast.parse(text)) or "").strip()


def test_every_public_name_is_there_and_documented() -> None:
    for name in wflab.__all__:
        value = getattr(wflab, name)
        assert inspect.getdoc(value), name
        if inspect.isclass(value) and value.__module__.startswith("wflab"):
            for method, member in vars(value).items():
                if not method.startswith("_") and inspect.isfunction(member):
                    assert inspect.getdoc(member), f"{name}.{method}"


def test_every_name_of_the_specification_can_be_imported() -> None:
    names = """start get_run create_hook resume_hook get_hook_by_token sleep get_step_metadata get_workflow_metadata
    step workflow FatalError RetryableError HookConflictError HookForceClaimedError HookNotFoundError HookDisposedError
    WorkflowStartError WorkflowRunFailedError WorkflowRunCancelledError WorkflowRunNotFoundError ReplayDivergenceError
    SerializationError Lab StartHook HookInfo Run use run_sync shutdown runs hooks now"""
    for name in names.split():
        assert hasattr(wflab, name), name
        assert name in wflab.__all__


def test_every_error_is_of_one_hierarchy() -> None:
    for name in wflab.errors.__all__:
        assert issubclass(getattr(wflab, name), wflab.WorkflowError)


def test_all_modules_list_what_exists() -> None:
    for path in MODULES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__main__" or "migrations" in parts or "notebooks" in parts:
            continue
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{path}: {name}"


def test_the_wheel_has_the_notebooks(tmp_path: Path) -> None:
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    assert built.returncode == 0, built.stderr
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    lessons = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert lessons == {name.rpartition("/")[2] for name in names if name.endswith(".ipynb")}
    assert "wflab/notebooks/01-start-once.ipynb" in names
    assert "wflab/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"wflab"}


def test_an_installed_lab_finds_the_notebooks_of_its_wheel(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    installed = tmp_path / "site-packages"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    told = subprocess.run(
        [sys.executable, "-c", "from wflab import cli; print(cli._examples() / cli.FIRST_NOTEBOOK)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = Path(told.stdout.strip())
    assert found.is_relative_to(installed)
    assert found.is_file()


def test_the_top_level_holds_what_it_should() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in files()}
    assert {name for name in top if not name.startswith(".")} == {
        "pyproject.toml",
        "wflab",
        "notebooks",
        "tests",
        "README.md",
    }


def test_no_file_names_a_machine_or_a_registry() -> None:
    forbidden = re.compile(rb"(?<![\w.~/])/(?:work|farm|root|opt|home)/\w|index-url|find-links|pythonhosted|npmjs\.org")
    for path in files():
        if path != Path(__file__):
            found = forbidden.search(path.read_bytes())
            assert found is None, f"{path}: {found}"


def test_nothing_that_tools_leave_behind_is_in_the_repository() -> None:
    left = re.compile(
        r"(^|/)(uv\.lock|\.venv|__pycache__|\.hypothesis|\.ipynb_checkpoints|build|dist)(/|$)|\.db(-wal|-shm)?$"
    )
    assert [path for path in files() if left.search(path.relative_to(ROOT).as_posix())] == []
