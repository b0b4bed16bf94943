"""Links between the pages lead to files and headings."""

import pages
from each import check_each


def test_links_lead_to_files_and_headings():
    def check(page, link):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert pages.ROOT in [target, *target.parents], link
        assert not heading or heading in pages.anchors(target), link

    check_each(
        check,
        {
            f"{pages.name(page)}: {link}": (page, link)
            for page in pages.PAGES
            for link in pages.links(page)
        },
    )
