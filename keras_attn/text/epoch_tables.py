"""Tables of numbers that hold for one epoch."""

IN_MEMORY = 2**20  # items; tables of more would take too much memory


class EpochTables:
    """Keep the tables of the last epoch that was asked for; of more than 2**20 items keep none.

    Args:
        num_items: int.
        make: function that returns the tables of an epoch.
    """

    def __init__(self, num_items, make):
        self._make = make if num_items <= IN_MEMORY else None
        self._kept = None, None

    def of(self, epoch):
        """Return the tables of an epoch, or None if there are too many items."""
        if self._make is None:
            return None
        kept = self._kept  # once: another thread may replace it
        if kept[0] != epoch:
            self._kept = kept = epoch, self._make(epoch)
        return kept[1]
