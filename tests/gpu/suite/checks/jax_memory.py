"""JAX: it preallocates the share that it is told, half here, of what it sees: in a slice, of the slice."""
import os

import tell


def check():
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
    jax = tell.need("jax")
    try:
        device = jax.devices("gpu")[0]
    except Exception as error:  # noqa: BLE001
        tell.skip(f"jax sees no GPU: {error}".splitlines()[0][:200])
    import jax.numpy as jnp
    tell.equal("a sum", float(jnp.ones((1024, 1024), jnp.float32).sum()), float(1 << 20))
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    tell.fact("memory_stats", stats)
    tell.expect(limit, "jax does not say what it may use")
    if tell.IN_SLICE and limit:
        tell.expect(limit <= tell.LIMIT, f"jax thinks it may use {tell.mib(limit)} MiB")
        tell.expect(limit >= tell.LIMIT * 0.5 - tell.GIB, f"jax takes only {tell.mib(limit)} MiB")
    try:
        jnp.ones((limit or 1 << 40,), jnp.float32).block_until_ready()
        tell.expect(False, "an array of four times the limit was made")
    except Exception as error:  # noqa: BLE001
        tell.fact("too large", str(error).splitlines()[0][:200])
        tell.expect("RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error).lower(), f"too large: {error}"[:200])


tell.main(check)
