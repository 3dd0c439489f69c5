"""The table of operations in the package's documentation is what the experiments say today."""

import kinds  # noqa: F401  (the experiments' own module, found beside this file)
from operations import TARGET, table

import kvcourse as kv


def test_our_half_of_the_table_is_up_to_date_and_has_no_wrong_answer():
    rows, counts = table(kv)
    assert counts["wrong"] == counts["crash"] == 0
    assert rows in TARGET.read_text(encoding="utf-8"), "run: python tests/operations.py"
