"""Run the quick tier and the Airflow tier side by side.

Most of the Airflow tier waits for the scheduler. The quick tier uses the rest of the processors, at a lower priority,
so that the time-outs of the Airflow tier hold. Show the quick tier's progress while it runs, the Airflow tier's report
when both have ended, and the summary lines of both at the end.

Temporary folders are in memory where there is enough of it: the tests create and delete many thousands of small files,
and on ext4 a new file costs more the more files were deleted in the seconds before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest"]
AIRFLOW = [*PYTEST, "-m", "airflow and not faults", "tests/airflow"]
# one more than processors, because many tests wait for processes and time-outs; two more were no faster
# (docs/log/performance.md). `tests/conftest.py` orders the files.
WORKERS = ["-n", str(len(os.sched_getaffinity(0)) + 1), "--dist", "loadfile", "--no-loadscope-reorder"]
MEMORY, NEEDED = "/dev/shm", 14e9
QUICK = ["nice", "-n", "15", *PYTEST, "-m", "not faults and not airflow", "--ignore=tests/airflow"]


def main() -> int:
    """Run both tiers to their end; return 0 if both have passed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryFile("w+") as kept, tempfile.TemporaryDirectory(prefix="t", dir=in_memory()) as folder:
        os.environ["TMPDIR"] = folder
        Path(folder).chmod(0o755)  # some children give their rights up, and read pictures below
        airflow = subprocess.Popen(AIRFLOW, cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)
        try:
            quick, shown = run([*QUICK, *WORKERS])
            status = airflow.wait()
        finally:
            # its fixtures stop the services that they have started
            if airflow.poll() is None:
                airflow.send_signal(signal.SIGINT)
                airflow.wait()
        kept.seek(0)
        report = kept.read()
    say(f"\nAirflow tier:\n{report}\n")
    say(f"quick tier:   {summary(shown)} (exit status {quick})\n")
    say(f"Airflow tier: {summary(report)} (exit status {status})\n")
    return int(bool(quick or status))


def in_memory() -> str | None:
    """Return a file system in memory if it has room for the tests (3 GB) beside their processes, else None."""
    with suppress(OSError):
        free = os.statvfs(MEMORY).f_bavail * os.statvfs(MEMORY).f_frsize
        runs_programs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        if runs_programs and min(free, psutil.virtual_memory().available) > NEEDED:
            return MEMORY
    return None


def run(command: list[str]) -> tuple[int, str]:
    """Run a command and show its output; return its exit status and output."""
    shown = b""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while part := os.read(process.stdout.fileno(), 4096):
            shown += part
            say(part.decode(errors="replace"))
    return process.returncode, shown.decode(errors="replace")


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(text)
        sys.stdout.flush()


def summary(report: str) -> str:
    """Return pytest's last line, which counts the tests."""
    lines = report.strip().splitlines()
    return lines[-1].strip("= ") if lines else "no output"


if __name__ == "__main__":
    sys.exit(main())
