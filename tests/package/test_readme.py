"""What the README says is so: its example, its commands, its table of folders."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import needs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]

CELL = """
import sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell(Path(sys.argv[1]).read_text(), store_history=True).raise_error()
"""


def test_the_example_does_what_it_says_in_ten_lines(tmp_path: Path) -> None:
    needs(importlib.util.find_spec("IPython") is not None, "IPython: pip install 'wflab[lab]'")
    example = README.split("```python\n")[1].split("```")[0]
    assert len([line for line in example.splitlines() if line.strip()]) == 10
    (tmp_path / "cell.py").write_text(example)
    command = [sys.executable, "-c", CELL, "cell.py"]
    owners = set()
    for duplicates in (4, 5):
        told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 0, told.stderr
        assert told.stderr == ""
        assert told.stdout.count("HookConflictError(") == duplicates
        assert told.stdout.count("<Run settle") == 5 - duplicates
        owners |= set(re.findall(r"wrun_\w+", told.stdout))
    assert len(owners) == 1


def test_the_picture_comes_first_and_is_there() -> None:
    picture = re.search(r"!\[.+\]\((.+?)\)", README.split("```")[0])
    assert picture is not None
    assert (ROOT / picture.group(1)).is_file()


def test_each_of_the_two_commands_has_a_uv_form_and_a_pip_form() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["uv", "python3", "uv", "python3"]
    for command in COMMANDS[:2]:
        assert command.endswith("wflab lab")
    for command in COMMANDS[2:]:
        assert command.endswith("python -m pytest -n 2")


def test_ci_runs_the_pip_form_of_the_test_command_and_ends_with_it() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == COMMANDS[3]


def test_what_the_commands_install_is_there() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.findall(r"--extra (\w+)|\.\[(\w+)\]", "\n".join(COMMANDS)):
        assert f"\n{''.join(extra)} = [" in project
    for file in re.findall(r"-c (\S+)", "\n".join(COMMANDS)):
        assert (ROOT / file).is_file()


@pytest.mark.parametrize("module", sorted(set(re.findall(r"`python -m ([\w.]+)", README))))
def test_a_module_that_is_run_by_name_is_there(module: str) -> None:
    assert (ROOT / Path(*module.split(".")) / "__main__.py").is_file()


def test_every_place_of_the_layout_is_there() -> None:
    places = [
        name for row in README.splitlines() if row.startswith("| `") for name in row.split("|")[1].split("`")[1::2]
    ]
    there = [place if "/" in place else f"wflab/{place}" for place in places]
    assert len(there) > 10
    assert [place for place in there if not (ROOT / place).exists()] == []
