"""Prints the memory of every device through cuda.bindings.driver.

Each device is queried without a context, with one, with 256 MiB held, and after they are freed.
"""
import uuid

from cuda.bindings import driver

HELD = 256 << 20


def ask(call, *arguments):
    """Returns the results of a driver call, and ends the program if the call fails."""
    status, *results = call(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{call.__name__}: {status!r}")
    return results[0] if len(results) == 1 else results


def tell(name):
    free, total = ask(driver.cuMemGetInfo)
    print(f"{name} total={total} free={free}")


ask(driver.cuInit, 0)
for ordinal in range(ask(driver.cuDeviceGetCount)):
    device = ask(driver.cuDeviceGet, ordinal)
    name = f"cuda {uuid.UUID(bytes=bytes(ask(driver.cuDeviceGetUuid, device).bytes))}"
    print(f"{name} device total={ask(driver.cuDeviceTotalMem, device)}")
    ask(driver.cuCtxSetCurrent, ask(driver.cuDevicePrimaryCtxRetain, device))
    tell(f"{name} context")
    memory = ask(driver.cuMemAlloc, HELD)
    tell(f"{name} holding")
    ask(driver.cuMemFree, memory)
    tell(f"{name} freed")
    ask(driver.cuDevicePrimaryCtxRelease, device)
