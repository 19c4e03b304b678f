"""All free memory can be allocated, 2 MiB more are refused, and freed memory is free again."""
import tell
from driver import OUT_OF_MEMORY, Cuda
from tell import STEP


def check():
    cuda = Cuda().start()
    free, total = cuda.info()
    # The driver decides whether one allocation can have all of it. Small ones can.
    held, part = [], max(STEP, free // 8 // STEP * STEP)
    while part >= STEP:
        code, at = cuda.alloc(part)
        if code == 0:
            held.append(at)
        elif tell.expect(code == OUT_OF_MEMORY, f"cuMemAlloc of {part} answered {code}"):
            part = part // 2 // STEP * STEP
    left, same = cuda.info()
    tell.fact("free at the start, in MiB", tell.mib(free))
    tell.fact("could not be had, in MiB", tell.mib(left))
    tell.equal("TOTAL with everything held", same, total)
    if tell.IN_SLICE:
        tell.expect(left < STEP, f"{tell.mib(left)} MiB were called free and could not be had")
    tell.equal("one step more", cuda.alloc(STEP)[0], OUT_OF_MEMORY)
    code, asked = cuda.alloc(total + STEP)
    tell.equal("more than there is", code, OUT_OF_MEMORY)
    for at in held:
        cuda.free(at)
    back, _ = cuda.info()
    tell.fact("did not come back, in MiB", tell.mib(free - back))
    tell.answer("free-is-had", {"free": free, "could not be had": left, "did not come back": free - back}, left < STEP)
    if tell.IN_SLICE:
        tell.equal("free afterwards", back, free)


tell.main(check)
