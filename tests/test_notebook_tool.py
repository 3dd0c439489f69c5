"""Running notebooks: outputs in one form, and the cell that fails named."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from notebooks import METADATA, WIDGET, Failed, execute, from_script, normalise, text_of


def test_pieces_of_a_stream_become_one_and_another_stream_stays_apart():
    outputs = [new_output("stream", name=name, text=text) for name, text in [("stdout", "a"), ("stdout", "b\n")]]
    outputs += [new_output("display_data", data={"text/plain": "1"}), new_output("stream", name="stdout", text="c")]
    book = normalise(new_notebook(cells=[new_code_cell("1", outputs=outputs)]))
    assert [output.get("text") for output in book.cells[0].outputs] == ["ab\n", None, "c"]


def test_nothing_of_the_run_or_the_machine_is_kept():
    widget = new_output("display_data", data={WIDGET: {"model_id": "8f3a", "version_major": 2}})
    cell = new_code_cell("1", outputs=[widget], metadata={"tags": ["x"], "execution": {"iopub.status.busy": "2026"}})
    first = new_notebook(cells=[cell], metadata={"widgets": {}, "kernelspec": {"name": "mine", "display_name": "Mine"}})
    book = normalise(first)
    assert book.metadata == METADATA and book.cells[0].metadata == {"tags": ["x"]}
    assert book.cells[0].outputs[0].data[WIDGET]["model_id"] == "widget-01"
    assert text_of(normalise(nbformat.reads(text_of(book), as_version=4))) == text_of(book)


def test_ids_are_kept_when_they_are_different_and_counted_when_not():
    kept = normalise(new_notebook(cells=[new_markdown_cell("a", id="x"), new_markdown_cell("b", id="y")]))
    assert [cell.id for cell in kept.cells] == ["x", "y"]
    kept.cells[1]["id"] = "x"
    assert [cell.id for cell in normalise(kept).cells] == ["cell-01", "cell-02"]


def test_a_script_becomes_a_notebook_with_its_tags(tmp_path):
    script = tmp_path / "lesson.py"
    script.write_text('# %% [markdown]\n# # T\n\n# %% tags=["setup"]\nx = 1\n')
    book = from_script(script)
    assert [(cell.cell_type, cell.source, cell.metadata.get("tags")) for cell in book.cells] == [
        ("markdown", "# T", None),
        ("code", "x = 1", ["setup"]),
    ]
    assert [cell.id for cell in book.cells] == ["cell-01", "cell-02"]


@pytest.mark.parametrize(
    ("source", "words"),
    [("x = 1\n1 / 0", "ZeroDivisionError"), ("import sys\nprint('w', file=sys.stderr)", "wrote to stderr")],
)
def test_the_cell_that_fails_is_named(source, words, tmp_path):
    book = new_notebook(cells=[new_markdown_cell("a"), new_code_cell("1"), new_code_cell(source)])
    with pytest.raises(Failed, match=f"cell 3, `{source.splitlines()[0]}`") as caught:
        execute(book, tmp_path)
    assert words in str(caught.value)
