"""`wflab` on the command line."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=True, help="A durable-workflow lab in a notebook.")
console = Console(stderr=True, highlight=False)
FIRST_NOTEBOOK = "01-start-once.ipynb"


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"wflab {version_of('wflab')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version, and end.")
    ] = False,
) -> None:
    """A durable-workflow lab in a notebook."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Option(help="Where the notebooks and the database go; ./wflab-lab when not given.")
    ] = None,
    port: Annotated[int, typer.Option(help="JupyterLab's port; the next free one is taken.")] = 8888,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only tell the address.")] = False,
) -> None:
    """Open JupyterLab on a copy of the example notebooks, with an embedded SQLite database.

    Notebooks that are there already stay as they are. Further options go to JupyterLab.

    Example: wflab lab --folder ~/lessons --port 9000
    """
    if importlib.util.find_spec("jupyterlab") is None:
        console.print("[red]JupyterLab is not installed.[/] Install it with:  pip install 'wflab\\[lab]'")
        raise typer.Exit(1)
    place = (folder or _default_folder()).expanduser().absolute()
    try:
        _copy_examples(place)
    except OSError as error:
        console.print(f"[red]{place} can't be written:[/] {error}. Choose another with --folder.")
        raise typer.Exit(1) from error
    database = os.environ.setdefault("WFLAB_DATABASE_URL", f"sqlite:///{place / 'wflab.db'}")
    console.print(f"Notebooks in [bold]{place}[/], runs in [bold]{database}[/]. Ctrl-C ends the lab.")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={place}", f"--port={port}"]
    command += [f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}", "--LabApp.news_url="]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # In a container one is often root, and JupyterLab asks for a word of consent then.
        command.append("--allow-root")
    raise typer.Exit(_run(command + context.args, place))


def _run(command: list[str], place: Path) -> int:
    """Run JupyterLab until it ends; Ctrl-C reaches it directly, and is its to obey."""
    with subprocess.Popen(command, cwd=place) as server:
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:
                continue


def _default_folder() -> Path:
    here = Path.cwd()
    return (here if os.access(here, os.W_OK) else Path.home()) / "wflab-lab"


def _examples() -> Path:
    """The example notebooks: beside the package in a checkout, inside it when installed."""
    inside = Path(__file__).parent / "notebooks"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "notebooks"


def _copy_examples(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for example in sorted(_examples().glob("*.ipynb")):
        mine = place / example.name
        if not mine.exists():
            shutil.copyfile(example, mine)
        elif not filecmp.cmp(example, mine, shallow=False):
            console.print(f"{mine.name}: your version stays as it is.")
