"""Links between the pages lead to files and headings."""

import pages
import pytest


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_the_links_of_a_page_lead_to_files_and_headings(page):
    for link in pages.links(page):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert pages.ROOT in [target, *target.parents], link
        assert not heading or heading in pages.anchors(target), link
