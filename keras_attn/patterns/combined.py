"""What two patterns in one have in common."""

from keras_attn import registry
from keras_attn.patterns.pattern import Pattern
from keras_attn.patterns.per_head import PerHead


class Combined(Pattern):
    """Two patterns, of which subclasses make one."""

    def __init__(self, first, second):
        self.check(first=first, second=second)
        for name, pattern in (("first", first), ("second", second)):
            if not pattern.is_of_positions or isinstance(pattern, PerHead):
                raise ValueError(
                    f"`{name}` of a combined pattern must be a function of positions alone, which "
                    f"{type(pattern).__name__} is not. Received: {name}={pattern!r}."
                )
        self.first, self.second = first, second

    def get_config(self):
        return {"first": registry.serialize(self.first), "second": registry.serialize(self.second)}

    @classmethod
    def from_config(cls, config):
        return cls(*(registry.deserialize(config[name]) for name in ("first", "second")))

    def __repr__(self):
        return f"{type(self).__name__}(first={self.first!r}, second={self.second!r})"
