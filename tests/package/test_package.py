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

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "wflab").rglob("*.py"))
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def run(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


def test_importing_wflab_loads_no_database_and_no_notebook() -> None:
    code = "import sys, wflab; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", code).stdout.split())
    assert not loaded & {"sqlmodel", "sqlalchemy", "pydantic", "pandas", "numpy", "IPython", "ipywidgets", "stripe"}


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
    assert "wflab/notebooks/01-start-once.ipynb" in names
    assert "wflab/py.typed" in names
    assert not any(name.startswith("tests") for name in names)


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"^(python3 -m venv .*pytest.*)$", readme, re.MULTILINE)
    assert command is not None
    assert command.group(1) in (ROOT / ".ci" / "run").read_text()


def test_the_readmes_example_does_what_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    example = readme.split("```python\n")[1].split("```")[0]
    script = tmp_path / "example.py"
    script.write_text(example)
    for duplicates in (4, 5):
        told = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
        lines = told.stdout.splitlines()
        assert len({line.partition(":")[0] for line in lines}) == 1
        assert sum(line.endswith("a duplicate") for line in lines) == duplicates


def test_the_top_level_holds_what_it_should() -> None:
    top = {name.partition("/")[0] for name in TRACKED}
    assert {name for name in top if not name.startswith(".")} <= {
        "pyproject.toml",
        "wflab",
        "notebooks",
        "tests",
        "README.md",
    }


def test_the_project_speaks_of_itself_only() -> None:
    forbidden = re.compile(r"(?<![\w.~])/(?:work|farm|root|opt)/|index-url|files\.pythonhosted|registry\.npmjs")
    for name in TRACKED:
        path = ROOT / name
        if path.suffix in (".png", ".zip") or path == Path(__file__):
            continue
        found = forbidden.search(path.read_text())
        assert found is None, f"{name}: {found}"
