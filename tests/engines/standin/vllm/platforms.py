"""A stand-in for vllm.platforms. Its one platform asks the driver if a device is integrated."""
import torch
from cuda.bindings import driver

INTEGRATED = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED


class current_platform:
    device_name = "cuda"

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def is_integrated_gpu(index):
        return torch.called(driver.cuDeviceGetAttribute(INTEGRATED, index)) == 1
