"""Build the site: the pages of the repository, API pages and tutorials as notebooks."""

import argparse
import sys
import tempfile
from pathlib import Path


def main(arguments=None):
    """Return the exit code, which is not 0 if there was a warning."""
    parser = argparse.ArgumentParser(prog="python -m recipes.site", description=__doc__)
    parser.add_argument("--out", default="site", help="folder of the site (default: site)")
    parser.add_argument("--plain", action="store_true", help="without the theme, in less time")
    options = parser.parse_args(arguments)
    # Imported late, so that --help answers at once.
    from sphinx.cmd.build import build_main

    from . import api, contents, pages

    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "sources")
        pages.write(sources)
        api.write(sources / "api")
        contents.write(sources)
        settings = ["-W", "--quiet", "-c", str(Path(__file__).parent), "-d", f"{folder}/doctrees"]
        settings += ["-D", "html_theme=basic"] if options.plain else []
        return build_main([*settings, str(sources), options.out])


if __name__ == "__main__":
    sys.exit(main())
