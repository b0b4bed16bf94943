"""Strategies: devices and processes that train one model together."""

from keras_attn.distribution.model_parallel import ModelParallel
from keras_attn.distribution.strategies import strategy
from keras_attn.distribution.workers import worker_failure_message

__all__ = ["ModelParallel", "strategy", "worker_failure_message"]
