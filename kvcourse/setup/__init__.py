"""Set-up: the environment, the learner's copies, the check-up. Standard library only, all of it.

environment.py makes `.venv` from requirements.lock; workspace.py copies the lessons into `work/`; jobs.py is what
`lab` and `test` then run; doctor.py looks at a machine without changing it.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.lock")


class SetupError(Exception):
    """Something that the person can mend: one sentence, and one command (or an empty string)."""

    def __init__(self, sentence, command=""):
        super().__init__(sentence + (" " + command if command else ""))
        self.sentence = sentence
        self.command = command


def call(command=""):
    """How this course is called on this system: `py -m kvcourse lab` on Windows, python3 elsewhere."""
    start = "py -m kvcourse" if sys.platform == "win32" else "python3 -m kvcourse"
    return (start + " " + command).strip()
