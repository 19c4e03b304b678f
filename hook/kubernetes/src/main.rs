//! gpuslice-dra: the DRA driver of a node.
//! Touches: the command line, and what the library touches.

use clap::Parser;
use gpuslice_dra::base::settings::Settings;

fn main() {
    let _settings = Settings::parse();
}
