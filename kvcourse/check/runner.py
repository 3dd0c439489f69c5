"""Run a learner's code so that it can neither end the check nor hang it.

Whatever goes wrong in it comes out as one exception, `Stopped`, with the line of the learner's own code. Endless loops
are ended by counting the steps that Python takes there; that works on every system, where an alarm would not.
"""

import functools
import linecache
import sys
import time

STEPS = 4_000_000  # of the learner's code in one call, about twenty a line; they take less than a second
CPU_SECONDS = 3.0  # for steps that take long each; other programs on the machine do not count
WALL_SECONDS = 10.0  # for steps that sleep


class Stopped(Exception):
    """A learner's code that did not come to its end.

    `kind`: "unfinished" (the stub is still there), "endless" or "error". `where`: the line of the learner's code in
    words, "" where none is known. `what`: what happened, in words.
    """

    def __init__(self, kind, where, what):
        super().__init__(f"{where}: {what}" if where else what)
        self.kind, self.where, self.what = kind, where, what


class _OutOfSteps(BaseException):
    """Not an Exception, so that `except Exception` in the learner's loop does not swallow it."""


def run(answer, function, *args, steps=STEPS, **kwargs):
    """`function(*args, **kwargs)`, where `function` is the learner's `answer` or belongs to it.

    Returns what it returns; raises Stopped when it raises anything, or takes more than `steps` steps.
    """
    own = home(answer)
    before = sys.gettrace()
    sys.settrace(_counter(own, steps))
    try:
        return function(*args, **kwargs)
    except _OutOfSteps as stop:
        sys.settrace(before)
        where = _place(stop.__traceback__, own)
        raise Stopped("endless", where, f"still running after {stop}; does the loop ever end?") from None
    except (Exception, SystemExit) as error:
        sys.settrace(before)
        # torch raises it, too, and then says why
        stub = isinstance(error, NotImplementedError) and not error.args
        unfinished = stub and _raised_in(error.__traceback__, own)
        where = _place(error.__traceback__, own)
        raise Stopped("unfinished" if unfinished else "error", where, _words(error)) from None
    finally:
        sys.settrace(before)


def home(answer):
    """The global names of the module or notebook that `answer` (a function, a class, an object) was written in."""
    while isinstance(answer, functools.partial):
        answer = answer.func
    answer = getattr(answer, "__func__", answer)
    if hasattr(answer, "__globals__"):
        return answer.__globals__
    kind = answer if isinstance(answer, type) else type(answer)
    for member in vars(kind).values():
        if hasattr(member, "__globals__"):
            return member.__globals__
    return getattr(sys.modules.get(kind.__module__), "__dict__", None)


def _counter(own, steps):
    """A trace function that counts the instructions run in frames of the learner and raises after `steps` of them.

    Lines would be too coarse: `while True: pass` is one line that never ends. The clocks are the second net.
    """
    left = steps
    clocks = [(time.thread_time, CPU_SECONDS), (time.monotonic, WALL_SECONDS)]
    deadlines = [(clock, clock() + seconds, seconds) for clock, seconds in clocks]

    def count(frame, event, arg):
        nonlocal left
        left -= 1
        if left < 0:
            raise _OutOfSteps(f"{steps:,} steps")
        if left % 20 == 0:
            for clock, deadline, seconds in deadlines:
                if clock() > deadline:
                    raise _OutOfSteps(f"{seconds:g} seconds")
        return count

    def enter(frame, event, arg):
        if frame.f_globals is not own:
            return None
        frame.f_trace_opcodes = True
        return count

    return enter


def _frames(traceback):
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _raised_in(traceback, own):
    """Whether the innermost frame is the learner's."""
    return [frame.f_globals is own for frame, _ in _frames(traceback)][-1]


def _place(traceback, own):
    """The innermost line of the learner's code, in words."""
    lines = [(frame.f_code.co_filename, line) for frame, line in _frames(traceback) if frame.f_globals is own]
    if not lines:
        return ""
    filename, line = lines[-1]
    source = linecache.getline(filename, line).strip()
    return f"line {line} of your code" + (f", `{source}`" if source else "")


def _words(error):
    """An exception as one short line."""
    if isinstance(error, RecursionError):
        return "a function calls itself without end"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}{' ...' if len(text) > 200 else ''}" if text else type(error).__name__
