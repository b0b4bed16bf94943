"""The page of families has the table of the results that its program has measured."""

import checkpoint_table
import pages

from keras_attn.convert.hugging_face.conversion import FAMILIES


def test_the_page_has_the_results_of_the_golden_files_of_today():
    rows = checkpoint_table.recorded()["checkpoints"]
    digests = {name: row["digest"] for name, row in rows.items()}
    assert digests == {name: checkpoint_table.digest(name) for name in rows}
    assert {row["family"] for row in rows.values()} <= FAMILIES.keys()
    assert "\n".join(checkpoint_table.page_table()) in pages.text(checkpoint_table.PAGE)
