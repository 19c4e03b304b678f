//! The variables and mounts by which NVIDIA's runtime and its legacy hook learn which GPUs to bring.
//! Touches: its arguments.

/// The variable that tells NVIDIA's runtime which GPUs to bring.
pub const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES=";

/// The folder whose mounts tell NVIDIA's runtime which GPUs to bring.
pub const BY_MOUNTS: &str = "/var/run/nvidia-container-devices";

/// The variables by which NVIDIA's legacy hook knows images from before [`VISIBLE`].
pub(crate) const OLD_CUDA: [&str; 2] = ["CUDA_VERSION=", "NVIDIA_REQUIRE_CUDA="];

/// Whether a value of [`VISIBLE`] names no GPU.
#[must_use]
pub fn is_none(wanted: &str) -> bool {
    matches!(wanted, "" | "void" | "none")
}

/// Whether NVIDIA's legacy hook gives all GPUs to a container with these variables because its image is
/// from before [`VISIBLE`] (`IsLegacy` in the toolkit's cuda_image.go).
#[must_use]
pub fn is_of_old_cuda(env: &[String]) -> bool {
    let value = |name| env.iter().find_map(|variable| variable.strip_prefix(name));
    let sets = |name| value(name).is_some_and(|value| !value.is_empty());
    let [version, require] = OLD_CUDA;
    value(VISIBLE).is_none() && sets(version) && !sets(require)
}
