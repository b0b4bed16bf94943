"""One test for many items, which names all that fail."""

import pytest


def check_each(check, items):
    """Call `check` with each item, a tuple as several arguments; fail with what all failures say.

    Args:
        check: function that raises an error for an item.
        items: the items, or a dict of them by the names that the message has.
    """
    named = items if isinstance(items, dict) else {str(item): item for item in items}
    assert named, "there is nothing to check"
    failures = []
    for name, item in named.items():
        try:
            check(*item) if isinstance(item, tuple) else check(item)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    if failures:
        pytest.fail(f"{len(failures)} of {len(named)} fail:\n\n" + "\n\n".join(failures))
