"""One at a time: a lock between processes that the operating system releases, also when its holder is killed."""

import errno
import sys
import time
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock(path: Path, waiting):
    """Hold the lock on the file `path`, which is made when missing.

    While another process has it we wait; `waiting()` is called once before, to say so.
    """
    with open(path, "a+b") as file:
        told = False
        while not _try_lock(file):
            if not told:
                waiting()
                told = True
            time.sleep(0.2)
        yield  # closing the file releases the lock


def _try_lock(file) -> bool:
    """Take the lock if it is free; never waits, so that a notebook can be interrupted."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True
