"""JAX's compiled programs, kept in a run's directory."""

import os

import keras


def keep_compiled_programs(directory):
    """Keep JAX's compiled programs in a directory, so that a restart finds them.

    By JAX's default a program that takes less than a second to compile is not kept. A directory
    that the user has named stays. Other backends need nothing.
    """
    if keras.backend.backend() != "jax":
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    jax.config.update("jax_compilation_cache_dir", os.path.abspath(directory))
    # JAX looks for the directory once, when it compiles for the first time.
    compilation_cache.reset_cache()
