"""JAX preallocates a share of the memory that it sees, here half: in a slice, half of the slice."""
import json
import os
import sys

import tell


# Preallocates the whole slice, which is more than is free beside the context.
WHOLE = """
import json, jax, jax.numpy as jnp
x = float(jnp.ones((1 << 20,), jnp.float32).sum())
print(json.dumps([x, (jax.devices("gpu")[0].memory_stats() or {}).get("bytes_limit")]))
"""


def backs_off():
    """Runs a process that tries to preallocate more than is free."""
    status, out, err = tell.run([sys.executable, "-c", WHOLE], timeout=30, env={"XLA_PYTHON_CLIENT_MEM_FRACTION": "1.0"})
    said = json.loads(out.splitlines()[-1]) if status == 0 and out else [None, None]
    tell.answer("jax-backs-off", {"status": status, "sum, bytes_limit": said, "slice": tell.LIMIT, "error": err.strip()[-300:]},
                status == 0 and said[0] == float(1 << 20))


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
    tell.answer("jax", {"version": jax.__version__, "memory_stats": stats},
                bool(limit) and limit <= tell.LIMIT if tell.IN_SLICE else None)
    tell.expect(limit, "jax does not say what it may use")
    if tell.IN_SLICE and limit:
        tell.expect(limit <= tell.LIMIT, f"jax thinks it may use {tell.mib(limit)} MiB")
        tell.expect(limit >= tell.LIMIT * 0.5 - tell.GIB, f"jax takes only {tell.mib(limit)} MiB")
    if tell.VARIANT == "small":
        backs_off()
    try:
        jnp.ones((limit or 1 << 40,), jnp.float32).block_until_ready()
        tell.expect(False, "an array of four times the limit was made")
    except Exception as error:  # noqa: BLE001
        tell.fact("too large", str(error).splitlines()[0][:200])
        tell.expect("RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error).lower(), f"too large: {error}"[:200])


tell.main(check)
