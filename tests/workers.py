"""Run tests in processes that are forked after collection: ``pytest --workers 3``.

Collection imports torch, mlflow and all else that the tests use: 25 processor seconds and a gigabyte, which each
worker of pytest-xdist would spend again. Workers take one file at a time, in the order of collection.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

FORK = multiprocessing.get_context("fork")
# the number of a worker, in its environment
WORKER = "TESTS_WORKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run tests in this many forked processes, file by file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all files in workers, and report what they send; a worker that dies is a failed test."""
    if not (workers := session.config.option.workers) or session.config.option.collectonly or session.testsfailed:
        return None
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    taken, queue = os.pipe()
    os.write(queue, b"".join(number.to_bytes(2) for number in range(len(files))))
    os.close(queue)
    running: dict[Connection, str] = {}
    processes = []
    try:
        for number in range(workers):
            receiver, sender = FORK.Pipe(duplex=False)
            running[receiver] = f"worker {number}"
            processes.append(FORK.Process(target=work, args=(session, number, files, taken, sender, [*running])))
            processes[-1].start()
            sender.close()
        report(session, running)
    finally:
        while os.read(taken, 4096):
            pass
        os.close(taken)
        for receiver in running:
            receiver.close()
        for process in processes:
            process.join()
    return True


def report(session: pytest.Session, running: dict[Connection, str]) -> None:
    """Hand what workers send to pytest's hooks until all workers have ended."""
    hook, begun, died = session.config.hook, 0, list[str]()
    while running:
        for receiver in wait([*running]):
            assert isinstance(receiver, Connection)
            try:
                name, values = receiver.recv()
            except EOFError:
                died.append(running[receiver])
                name = "end"
            if name == "end":
                with closing(receiver):
                    running.pop(receiver)
                continue
            if name == "pytest_runtest_logstart":
                running[receiver] = values["nodeid"]
                begun += 1
            elif name == "pytest_runtest_logreport":
                values = {"report": hook.pytest_report_from_serializable(config=session.config, data=values)}
            elif name == "pytest_warning_recorded":
                hook.pytest_warning_recorded.call_historic(kwargs=values)
                continue
            getattr(hook, name)(**values)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    for nodeid in died:
        why = f"its worker died; {len(session.items) - begun} tests were not run"
        lost = pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, "failed", why, "call")
        hook.pytest_runtest_logreport(report=lost)


def work(
    session: pytest.Session, number: int, files: Sequence[list[pytest.Item]], taken: int, sender: Connection,
    readers: Sequence[Connection],
) -> None:  # fmt: skip
    """Run files until none is left, in a forked process with output and temporary folders of its own."""
    for reader in readers:  # a worker whose reader has gone gets a broken pipe
        reader.close()
    config, plugins = session.config, session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(Sender(config, sender))
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    os.environ[WORKER] = str(number)
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"worker-{number}"
    factory._basetemp.mkdir(mode=0o700)
    try:
        with suppress(BrokenPipeError):
            for item, following in pairwise(chain(items(taken, files), [None])):
                assert item is not None
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    break
            sender.send(("end", None))
    finally:
        session._setupstate.teardown_exact(None)
        capture.stop_global_capturing()


def items(taken: int, files: Sequence[list[pytest.Item]]) -> Iterator[pytest.Item]:
    """Take files from the queue that all workers share; return their tests."""
    while number := os.read(taken, 2):
        yield from files[int.from_bytes(number)]


class Sender:
    """Send a worker's reports and warnings to the process that prints them."""

    def __init__(self, config: pytest.Config, sender: Connection) -> None:
        self._config, self._sender = config, sender

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._sender.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._sender.send(("pytest_runtest_logreport", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        text, kind = str(warning_message.message), warning_message.category
        plain = warnings.WarningMessage(text, kind, warning_message.filename, warning_message.lineno)
        values = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
        self._sender.send(("pytest_warning_recorded", values))
