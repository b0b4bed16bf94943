"""JAX's compiled programs, kept in a run's directory."""

import os

import keras


def keep_compiled_programs(directory):
    """Let JAX keep the programs that take it longest to compile, and find them at a restart.

    A directory that the user has named stays. Other backends need nothing.
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
