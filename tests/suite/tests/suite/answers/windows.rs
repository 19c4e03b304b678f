//! NVML's sizes that do not tell how much memory programs can have: they stay the card's.
//! Touches: nvidia-ml-py, unmodified.

use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

const SCRIPT: &str = "
import pynvml as nvml
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
window = nvml.nvmlDeviceGetBAR1MemoryInfo(card)
print('window', window.bar1Total, window.bar1Free, window.bar1Used)
try:
    areas = nvml.nvmlDeviceGetConfComputeMemSizeInfo(card)
    print('areas', areas.protectedMemSizeKib, areas.unprotectedMemSizeKib)
except nvml.NVMLError as error:
    print('areas', error)
print('memory', nvml.nvmlDeviceGetMemoryInfo(card).total)
";

#[test]
fn the_window_and_the_areas_of_the_card_are_not_the_slices() {
    let said = |run: Run| run.args(["-c", SCRIPT]).answer().clean();
    let machine = Machine::new("rtx3090");
    let bare = said(machine.place(Run::new(place::venv("python"))));
    let slice = Counted::new("rtx3090", GIB);
    let sliced = said(slice.run(place::venv("python")));
    let without_memory = |text: &str| text.split("memory").next().unwrap().to_owned();
    assert_eq!(without_memory(&bare), without_memory(&sliced));
    assert!(bare.starts_with("window 268435456 "), "{bare}");
    assert!(sliced.ends_with("memory 1073741824\n"), "{sliced}");
    assert!(!bare.ends_with("memory 1073741824\n"), "{bare}");
}
