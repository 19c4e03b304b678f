"""Tests the Python API of an installed wheel, on the simulated GPU that GPUSLICE_TEST_SIM names."""

import json
import os
import subprocess
import sys
import unittest

import gpuslice

MACHINE = os.environ.get("GPUSLICE_TEST_SIM", "rtx3090")
GIB = 1 << 30


def in_a_slice(code, *options):
    """Runs a program in a slice of 8 GiB, and returns the JSON that it prints."""
    run = [gpuslice.executable(), "run", "--sim", MACHINE, "--memory", "8GiB", *options]
    program = "import json, gpuslice\n" + code
    done = subprocess.run([*run, "--", sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


class Slices(unittest.TestCase):
    def test_without_a_slice_there_is_none(self):
        self.assertIsNone(gpuslice.slice())

    def test_the_numbers_of_the_current_slice(self):
        found = in_a_slice(
            "mine = gpuslice.slice()\n"
            "gpu, = mine.devices\n"
            "print(json.dumps([mine.name, mine.enforce, mine.total, mine.error,\n"
            "    gpu.limit, gpu.used, gpu.left, gpu.headroom, gpu.refusals, gpu.worst_short_by, gpu.processes]))",
            "--name",
            "chat",
        )
        self.assertEqual(found, ["chat", True, "slice", None, 8 * GIB, 0, 8 * GIB, 0, 0, 0, []])

    def test_memory_that_this_process_allocates_is_counted(self):
        used, refusals, short, left, processes, own = in_a_slice(
            "import ctypes, os\n"
            "cuda = ctypes.CDLL('libcuda.so.1')\n"
            "context, pointer = ctypes.c_void_p(), ctypes.c_void_p()\n"
            "assert cuda.cuInit(0) == 0\n"
            "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
            "assert cuda.cuCtxSetCurrent(context) == 0\n"
            "assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30)) == 0\n"
            "assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(8 << 30)) == 2\n"
            "gpu, = gpuslice.slice().devices\n"
            "print(json.dumps([gpu.by_kind, gpu.refusals, gpu.worst_short_by, gpu.left,\n"
            "    [[it.pid, it.used] for it in gpu.processes], os.getpid()]))"
        )
        self.assertEqual(used["linear"], GIB)
        held = sum(used.values())
        self.assertEqual((refusals, short, left), (1, held, 8 * GIB - held))
        self.assertEqual(processes, [[own, held]])


class Checks(unittest.TestCase):
    def test_all_answers_in_a_slice_agree(self):
        consistent, library, totals, disagreements, incomplete = in_a_slice(
            "it = gpuslice.check(timeout=300)\n"
            "totals = {a.total for a in it.answers if a.api == 'cuMemGetInfo_v2'}\n"
            "print(json.dumps([it.consistent, it.library, sorted(totals), it.disagreements, it.incomplete]))"
        )
        self.assertEqual((consistent, totals, disagreements, incomplete), (True, [8 * GIB], [], []))
        self.assertTrue(os.path.isfile(library))

    def test_a_machine_without_a_driver_is_named(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a driver")
        with self.assertRaises(gpuslice.NoDriver) as raised:
            gpuslice.check(timeout=300)
        self.assertIn("driver", str(raised.exception))


class Commands(unittest.TestCase):
    def test_python_m_is_the_command(self):
        done = subprocess.run([sys.executable, "-m", "gpuslice", "--version"], stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.decode(), f"gpuslice {gpuslice.__version__}\n")

    def test_the_types_are_shipped(self):
        folder = os.path.dirname(gpuslice.__file__)
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))


if __name__ == "__main__":
    unittest.main()
