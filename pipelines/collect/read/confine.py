"""Give up every permission that reading a picture does not need: files, network, processes, the user (Linux).

Child processes call :func:`confine` after their imports and before the first picture. Landlock denies files, TCP and
signals; seccomp denies every system call except computing and the open pipes; root becomes a user that owns nothing.
The standard library is enough: no module of this project that reads settings or secrets is imported.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# Not root, and not 65534, which may own files and runs the embedded PostgreSQL.
UID = 65_533
REQUEST = struct.Struct(">Q")
READY = struct.Struct(">I")
# linux/prctl.h, linux/seccomp.h, linux/landlock.h, linux/audit.h
NO_NEW_PRIVS, SECCOMP_FILTER, FILTER_ALL_THREADS = 38, 1, 1
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
PATH_BENEATH, WHICH_ABI = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14
NET_ABI, SCOPE_ABI = 4, 6
ALLOW, REFUSE, KILL = 0x7FFF_0000, 0x0005_0001, 0x8000_0000  # REFUSE: EPERM
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16
ARCHITECTURES = {"x86_64": (0xC000_003E, 0, 317), "aarch64": (0xC000_00B7, 1, 277)}
# By name: the numbers on x86_64 and aarch64. Nothing here opens, connects, starts or signals anything.
COMPUTING = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "mmap": (9, 222),
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "writev": (20, 66), "sched_yield": (24, 124),
    "mremap": (25, 216), "madvise": (28, 233), "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93),
    "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179),
    "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "set_robust_list": (273, 99), "getcpu": (309, 168),
    "getrandom": (318, 278), "membarrier": (324, 283), "rseq": (334, 293),
}  # fmt: skip
# Allowed for the process itself only, also where programs must be started.
LIMITS = {"prlimit64": (302, 261)}
# Denied where programs must be started (the OCR program): sockets, tracing, other processes' memory, kernel interfaces.
DANGEROUS = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "sendto": (44, 206), "sendmsg": (46, 211), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "tkill": (200, 130), "io_uring_setup": (425, 425), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "open_by_handle_at": (304, 265), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105), "finit_module": (313, 273),
    "kexec_load": (246, 104), "mknodat": (259, 33), "chroot": (161, 51),
}  # fmt: skip


def confine(*, programs: bool = False) -> list[str]:
    """Give up permissions for good; return which layers hold: ``user``, ``seccomp`` and, if no programs, ``landlock``.

    With ``programs`` the process may start programs: the rules of an earlier :func:`allow_only` then remain, and system
    calls are denied by a list instead of allowed by one.
    """
    held = [] if programs else ["landlock"] * allow_only()
    held += ["user"] * _drop()
    return held + ["seccomp"] * _filter(programs=programs)


def allow_only(readable: Sequence[str] = (), *, writable: Sequence[str] = ()) -> bool:
    """Deny this thread and what it starts all other files, TCP and foreign signals; return whether the kernel does."""
    if sys.platform != "linux":
        return False
    try:
        abi = _call(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(WHICH_ABI))
        files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
        rules = struct.pack("<QQQ", files, 3 * (abi >= NET_ABI), 3 * (abi >= SCOPE_ABI))
        size = 24 if abi >= SCOPE_ABI else 16 if abi >= NET_ABI else 8
        ruleset = _call(LANDLOCK_CREATE, ctypes.c_char_p(rules), ctypes.c_size_t(size), 0)
        try:
            for paths, rights in ((readable, EXECUTE | READ_FILE | READ_DIR), (writable, files)):
                for path in paths:
                    _allow(ruleset, path, rights & files)
            _prctl(NO_NEW_PRIVS)
            _call(LANDLOCK_RESTRICT, ruleset, 0)
        finally:
            os.close(ruleset)
    except (OSError, AttributeError):
        return False
    return True


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        below = os.open(path, os.O_PATH)
    except FileNotFoundError:
        return
    try:
        if not Path(path).is_dir():
            rights &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
        rule = struct.pack("<Qi", rights, below)
        _call(LANDLOCK_ADD, ruleset, PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(below)


def _drop() -> bool:
    """Become :data:`UID` if this is root, in all threads; return whether this is not root."""
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(UID, UID, UID)
            os.setresuid(UID, UID, UID)
    except (OSError, AttributeError):
        return False
    return 0 not in (os.getuid(), os.geteuid())


def _filter(*, programs: bool) -> bool:
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES or sys.maxsize < 2**32:
        return False
    arch, column, seccomp = ARCHITECTURES[platform.machine()]
    step = struct.Struct("<HBBI")
    program = [step.pack(LOAD, 0, 0, ARCH), step.pack(EQUAL, 1, 0, arch), step.pack(RETURN, 0, 0, KILL)]
    program.append(step.pack(LOAD, 0, 0, NUMBER))
    listed, otherwise = (REFUSE, ALLOW) if programs else (ALLOW, REFUSE)
    for number in (DANGEROUS if programs else COMPUTING).values():
        program += [step.pack(EQUAL, 0, 1, number[column]), step.pack(RETURN, 0, 0, listed)]
    # limits of this process only: both halves of the first argument (a process id) are 0
    program += [step.pack(EQUAL, 0, 6, LIMITS["prlimit64"][column])]
    program += [step.pack(LOAD, 0, 0, FIRST_ARGUMENT), step.pack(EQUAL, 0, 3, 0)]
    program += [step.pack(LOAD, 0, 0, FIRST_ARGUMENT + 4), step.pack(EQUAL, 0, 1, 0)]
    program += [step.pack(RETURN, 0, 0, ALLOW), step.pack(RETURN, 0, 0, REFUSE)]
    if column == 0:
        # the second table of x86_64's system calls (x32)
        program += [step.pack(AT_LEAST, 0, 1, 0x4000_0000), step.pack(RETURN, 0, 0, REFUSE)]
    program.append(step.pack(RETURN, 0, 0, otherwise))
    code = ctypes.create_string_buffer(b"".join(program))
    whole = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code))
    try:
        _prctl(NO_NEW_PRIVS)
        return _call(seccomp, SECCOMP_FILTER, FILTER_ALL_THREADS, ctypes.c_char_p(whole)) == 0
    except OSError:
        return False


def _call(*arguments: object) -> int:
    result = int(ctypes.CDLL(None).syscall(*arguments))
    if result < 0:
        raise OSError("system call refused")
    return result


def _prctl(option: int) -> None:
    if ctypes.CDLL(None).prctl(option, 1, 0, 0, 0):
        raise OSError("prctl refused")


def limit(*, memory_mb: int, files: int = 16, written: int = 0) -> None:
    """Limit this process's memory and files, and disable core dumps, which would contain the picture."""
    for what, most in (
        (resource.RLIMIT_AS, memory_mb * 2**20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, written),
        (resource.RLIMIT_NOFILE, files),
    ):
        resource.setrlimit(what, (most, most))


def limit_cpu(*, seconds: int) -> None:
    """Limit the processor time for the next picture; this also ends a child whose parent has died."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))


def announce(**facts: object) -> None:
    """Tell the parent that this process is confined, or why it cannot start."""
    message = json.dumps(facts).encode()
    sys.stdout.buffer.write(READY.pack(len(message)) + message)
    sys.stdout.buffer.flush()


def serve(answer: Callable[[bytes], Sequence[bytes]], *, seconds: int) -> None:
    """Answer requests (a length, then that many bytes) from the pipe until the parent closes it."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(REQUEST.size):
        limit_cpu(seconds=seconds)
        for part in answer(source.read(*REQUEST.unpack(head))):
            sink.write(part)
        sink.flush()
