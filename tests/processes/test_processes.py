"""Several processes on one file, and processes that are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.programs import chain, receiver
from wflab import HookNotFoundError, Lab, SchemaVersionError, StartHook, WorldUnavailableError, step, workflow

ROOT = Path(__file__).parents[2]


class Program:
    """A program of `programs.py` in a process of its own."""

    def __init__(self, name: str, url: str, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.processes.programs", name, url, *map(str, arguments)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """As a power cut would end it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Programs:
    """Programs on one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.started: list[Program] = []

    def __call__(self, name: str, *arguments: object) -> Program:
        self.started.append(Program(name, self.url, *arguments))
        return self.started[-1]


@pytest.fixture
def programs(url: str) -> Iterator[Programs]:
    begin = Programs(url)
    yield begin
    for program in begin.started:
        program.kill()
        for pipe in (program.process.stdin, program.process.stdout):
            if pipe is not None:
                pipe.close()


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


async def test_after_a_kill_an_open_run_goes_on_by_itself(programs: Programs, url: str, tmp_path: Path) -> None:
    file = tmp_path / "done.txt"
    first = programs("begin_journey", file)
    run_id = first.line()
    wait_for(lambda: len(lines(file)) == 2)
    first.kill()
    second = programs("go_on", run_id)
    assert second.line() == "['first', 2, 'kept', 'later']"
    done = [line.split() for line in lines(file)]
    assert [line[0] for line in done] == ["first", "hang", "hang"]
    assert [line[-1] for line in done] == ["1", "1", "2"]
    assert done[1][2] == done[2][2], "the same step id on both attempts"


@pytest.mark.parametrize("seed", range(6))
async def test_a_kill_at_any_point_loses_and_repeats_nothing(
    programs: Programs, url: str, tmp_path: Path, seed: int
) -> None:
    file = tmp_path / "done.txt"
    chance = random.Random(seed)
    run_id = programs("begin_chain", file).line()
    at_least = 1
    for _ in range(3):
        wait_for(lambda least=at_least: len(lines(file)) >= least)
        time.sleep(chance.random() * 0.05)
        programs("finish", run_id) if at_least == 1 else None
        at_least = len(lines(file)) + 50
        _kill_all(programs)
        programs("finish", run_id)
    wait_for(lambda: len(lines(file)) >= at_least)
    _kill_all(programs)
    done = [line.split() for line in lines(file)]
    ids = {text: step_id for text, step_id, _ in done}
    assert sorted(map(int, ids)) == list(range(len(ids)))
    for text, step_id, _ in done:
        assert ids[text] == step_id
    attempts = Counter((text, attempt) for text, _, attempt in done)
    assert set(attempts.values()) == {1}, "no attempt ran twice"
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        positions = [row[0] for row in database.execute("select position from events order by position")]
    database.close()
    assert positions == list(range(1, len(positions) + 1))


def _kill_all(programs: Programs) -> None:
    for program in programs.started:
        program.kill()


async def test_processes_that_start_the_same_keys_agree_on_one_owner_each(programs: Programs, url: str) -> None:  # R26
    async with Lab(url):
        pass
    callers = [programs("starts", "k", 40) for _ in range(4)]
    for caller in callers:
        assert caller.line() == "ready"
    for caller in callers:
        caller.tell()
    owners = [caller.line().split() for caller in callers]
    assert all(len(found) == 40 for found in owners)
    assert all(found == owners[0] for found in owners)
    async with Lab(url) as lab:
        assert len(lab.runs(limit=1000)) == 40


async def test_a_payload_from_another_process_wakes_the_run_within_100_ms(programs: Programs, url: str) -> None:
    async with Lab(url) as lab:
        late = []
        for number in range(5):
            other = programs("receive", f"t{number}")
            assert other.line() == "waiting"
            sent = time.time()
            await lab.resume_hook(f"t{number}", "x")
            late.append(float(other.line()) - sent)
        assert sorted(late)[2] < 0.1, late


async def test_a_result_from_another_process_is_noticed(programs: Programs, url: str) -> None:
    async with Lab(url) as lab:
        other = programs("receive", "there")
        assert other.line() == "waiting"
        run = lab.get_run(next(iter(lab.runs())).run_id)
        waiting = asyncio.create_task(run.return_value(timeout=20))
        await lab.resume_hook("there", "came")
        assert await waiting == "came"
        other.line()


async def test_a_run_cancelled_from_another_process_stops_here(programs: Programs, url: str) -> None:  # R14
    running, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @step
    async def hangs() -> None:
        loop.call_soon_threadsafe(running.set)
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_soon_threadsafe(ended.set)

    @workflow
    async def body() -> None:
        await hangs()

    async with Lab(url) as lab, Lab(url) as elsewhere:
        run = await lab.start(body)
        await running.wait()
        await elsewhere.get_run(run.run_id).cancel()
        await asyncio.wait_for(ended.wait(), 20)
        assert await run.status() == "cancelled"


async def test_a_script_that_ends_leaves_its_runs_to_go_on(programs: Programs, url: str, tmp_path: Path) -> None:
    file = tmp_path / "done.txt"
    program = programs("start_only", file)
    run_id = program.line()
    assert program.process.wait(20) == 0
    async with Lab(url) as lab:
        assert await lab.get_run(run_id).return_value(timeout=20) == 3
    assert [line.split()[0] for line in lines(file)] == ["0", "1", "2"] or len(lines(file)) > 3
    assert {line.split()[0] for line in lines(file)} == {"0", "1", "2"}


async def test_a_process_without_the_definition_steals_no_run(programs: Programs, url: str) -> None:  # R12
    other = programs("receive", "mine")
    assert other.line() == "waiting"
    code = "import asyncio, sys, wflab\nwflab.use(sys.argv[1])\nasyncio.run(wflab.resume_hook('mine', 1))\n"
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=30)
    assert float(other.line()) > 0


async def test_two_labs_race_for_one_key_in_one_process(url: str) -> None:  # R26
    async with Lab(url) as one, Lab(url) as two:

        async def call(lab: Lab, number: int) -> str:
            try:
                return (await lab.start(receiver, [f"x{number}"], hook=StartHook(f"k{number}"))).run_id
            except Exception as refused:
                return refused.conflicting_run_id  # type: ignore[attr-defined,no-any-return]

        for number in range(30):
            found = await asyncio.gather(*(call(lab, number) for lab in (one, two, one, two)))
            assert len(set(found)) == 1


async def test_steps_and_payloads_from_two_labs_keep_one_order(url: str, tmp_path: Path) -> None:  # decision 5
    @step
    async def echo(value: int) -> int:
        return value

    @workflow
    async def collects(count: int) -> list[int]:
        hook = create("busy")
        return [await echo(await hook) for _ in range(count)]

    from wflab import create_hook as create

    async with Lab(url) as lab, Lab(url) as sender:
        run = await lab.start(collects, [200])
        while True:
            try:
                await sender.resume_hook("busy", 0)
                break
            except HookNotFoundError:
                await asyncio.sleep(0.001)
        for number in range(1, 200):
            await sender.resume_hook("busy", number)
        assert await run.return_value(timeout=30) == list(range(200))
        events = await run.events()
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        # What the log says replays to the same end.
        from wflab.engine.log import delivery_order
        from wflab.engine.replay import Replay

        replay = Replay(await lab.world.run(run.run_id), collects, lab, 0)  # type: ignore[arg-type]
        await lab.shutdown()
        recorded = await sender.world.events(run.run_id)
        assert any(item.seen is not None for item in recorded), "the race that this is about did not happen"
        assert replay.feed(delivery_order(recorded)) == []


# -- bad databases --------------------------------------------------------------------------------------------------


async def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("not a database, but long enough to look like one " * 10)
    before = file.read_bytes()
    with pytest.raises(SchemaVersionError, match="not a wflab database"):
        await Lab(f"sqlite:///{file}", inline=True).start(receiver, ["x"])
    assert file.read_bytes() == before


async def test_a_database_of_others_is_refused_untouched(tmp_path: Path) -> None:
    file = tmp_path / "music.db"
    with sqlite3.connect(file) as other:
        other.execute("create table songs(id integer)")
    other.close()
    with pytest.raises(SchemaVersionError) as refused:
        await Lab(f"sqlite:///{file}", inline=True).start(receiver, ["x"])
    assert refused.value.found is None
    with sqlite3.connect(file) as other:
        assert [row[0] for row in other.execute("select name from sqlite_master")] == ["songs"]
    other.close()


async def test_a_newer_database_is_refused_with_the_version_it_needs(tmp_path: Path, url: str) -> None:
    async with Lab(url, inline=True):
        pass
    with sqlite3.connect(url.removeprefix("sqlite:///")) as newer:
        newer.execute("update wflab_schema set version_num = '9999'")
    newer.close()
    with pytest.raises(SchemaVersionError) as refused:
        await Lab(url, inline=True).start(receiver, ["x"])
    assert refused.value.found == "9999"


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorldUnavailableError, match="no folder"):
        await Lab(f"sqlite:///{tmp_path}/no/where/x.db", inline=True).start(receiver, ["x"])


async def test_a_database_locked_by_another_program_is_told_and_nothing_is_written(url: str) -> None:
    from wflab.world.sqlite import SqliteWorld

    async with Lab(SqliteWorld(url, patience_s=0.3)) as lab:
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("begin immediate")
        with pytest.raises(WorldUnavailableError, match="locked by another program"):
            await lab.start(receiver, ["x"])
        other.execute("rollback")
        other.close()
        assert len(lab.runs()) == 0
        await lab.start(receiver, ["x"])


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self/mounts").exists(), reason="root may write anything")
async def test_a_read_only_database_is_told(url: str) -> None:
    async with Lab(url):
        pass
    read_only = url.replace("sqlite:///", "sqlite:///file:") + "?mode=ro&uri=true"
    with pytest.raises(WorldUnavailableError, match="readonly"):
        await Lab(read_only, inline=True).start(receiver, ["x"])


async def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(url: str) -> None:
    async with Lab(url) as lab:
        await lab.start(receiver, ["x"])
        writer = lab.world._writer
        pages = writer.exec_driver_sql("pragma page_count").scalar()
        writer.exec_driver_sql(f"pragma max_page_count={pages}")
        with pytest.raises(WorldUnavailableError, match="full"):
            await lab.start(chain, ["x" * 100_000, 1])
        writer.exec_driver_sql("pragma max_page_count=1000000")
        assert len(lab.runs()) == 1
        await lab.start(receiver, ["y"])


def test_a_script_ends_quietly_and_without_delay(url: str) -> None:
    code = (
        "import asyncio, sys, time, wflab\n"
        "from tests.processes.programs import receiver\n"
        "wflab.use(sys.argv[1])\n"
        "print(asyncio.run(wflab.start(receiver, ['x'])).run_id)\n"
    )
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", code, url], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stderr == ""
    assert time.monotonic() - began < 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_an_engine_of_its_own(url: str) -> None:
    code = (
        "import asyncio, os, sys, wflab\n"
        "from tests.processes.programs import chain, receiver\n"
        "wflab.use(sys.argv[1])\n"
        "run = asyncio.run(wflab.start(receiver, ['x']))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    other = asyncio.run(wflab.start(chain, ['/dev/null', 3]))\n"
        "    print(asyncio.run(other.return_value(timeout=10)), flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "async def finish():\n"
        "    await wflab.resume_hook('x', 'parent')\n"
        "    return await run.return_value(timeout=10)\n"
        "print(asyncio.run(finish()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.split() == ["3", "parent"]
