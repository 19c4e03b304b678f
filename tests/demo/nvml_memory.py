"""Prints the memory that every dashboard queries, through nvidia-ml-py."""
import pynvml

pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = pynvml.nvmlDeviceGetName(device)
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        print(f"  {name}: {memory.total / 2**30:.2f} GiB total, {memory.free / 2**30:.2f} free, {memory.used / 2**30:.2f} used")
    except pynvml.NVMLError as error:
        print(f"  {name}: nvmlDeviceGetMemoryInfo: {error}")
