"""Print what each check says to each wrong answer: python tests/wrong_answers/report.py [02a ...]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kvcourse as kv  # noqa: E402
from wrong_answers import bank, judge  # noqa: E402


def name_of(answer):
    """A class by the name of its `update`, a function by its own, anything else as it is."""
    if isinstance(answer, tuple):
        return ", ".join(map(name_of, answer))
    named = getattr(answer, "update", answer) if isinstance(answer, type) else answer
    return getattr(named, "__name__", None) or str(answer)


def main(tasks):
    wrong, missed = bank("WRONG"), 0
    for task in tasks or sorted(wrong):
        print(f"\n{task}: {kv.check.TASKS[task].about}")
        for answer, words in wrong[task]:
            verdict = judge(kv.check.TASKS[task], answer)
            caught = verdict.state == "wrong" and words in str(verdict)
            missed += not caught
            says = verdict["likely"] or verdict["came"]
            print(f"  {'caught' if caught else 'MISSED'}  {name_of(answer):30.30}  {says}")
    counted = sum(len(wrong[task]) for task in tasks or wrong)
    print(f"\n{counted - missed} of {counted} wrong answers caught with their message")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
