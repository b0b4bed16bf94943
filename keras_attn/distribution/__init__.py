"""Devices and processes that train one model together."""

from keras_attn.distribution.strategies import strategy
from keras_attn.distribution.worker_failure import lost_worker

__all__ = [
    "lost_worker",
    "strategy",
]
