//! The messages of NRI that the plugin reads and writes, with the fields that it needs.
//! Touches: nothing.
//!
//! The numbers are those of pkg/api/api.proto of containerd/nri, package nri.pkg.api.v1alpha1. They
//! are the same from 0.3 (containerd 1.7) to 0.12.

use std::collections::HashMap;

/// The engine's service.
pub const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";

/// The plugin's service.
pub const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";

/// The bit of the event CREATE_CONTAINER (4) in a subscription.
pub const CREATE_CONTAINER: i32 = 1 << 3;

/// The states of a container in which its process exists: created, paused, running.
pub const ALIVE: [i32; 3] = [1, 2, 3];

/// The plugin's first call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterRequest {
    /// The plugin's name.
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    /// Its place among others.
    #[prost(string, tag = "2")]
    pub plugin_idx: String,
}

/// The engine's first call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigureRequest {
    /// The engine's name.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// The engine's version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

/// The plugin's subscription.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigureResponse {
    /// The events, one bit each.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// The pods and containers that exist when the plugin connects, in one or more calls.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SynchronizeRequest {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<PodSandbox>,
    /// The containers.
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    /// Whether more calls follow.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// The answer: no container is changed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SynchronizeResponse {
    /// Whether the plugin understands that more calls follow.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A container is about to be created.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateRequest {
    /// Its pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// The answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateResponse {
    /// The change of the container.
    #[prost(message, optional, tag = "1")]
    pub adjust: Option<Adjustment>,
}

/// A pod.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandbox {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its uid.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its annotations.
    #[prost(map = "string, string", tag = "6")]
    pub annotations: HashMap<String, String>,
}

/// A container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its pod's id.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name in its pod.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its state.
    #[prost(int32, tag = "4")]
    pub state: i32,
    /// The annotations in its config.json.
    #[prost(map = "string, string", tag = "6")]
    pub annotations: HashMap<String, String>,
    /// Its environment.
    #[prost(string, repeated, tag = "8")]
    pub env: Vec<String>,
    /// Its mounts.
    #[prost(message, repeated, tag = "9")]
    pub mounts: Vec<Mount>,
    /// Its hooks.
    #[prost(message, optional, tag = "10")]
    pub hooks: Option<Hooks>,
    /// The part that only Linux has.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
    /// Its CDI devices, from NRI 0.9 on.
    #[prost(message, repeated, tag = "20")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A mount.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mount {
    /// Its path in the container.
    #[prost(string, tag = "1")]
    pub destination: String,
}

/// The hooks of a container that matter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hooks {
    /// Before the container is created: the older stage.
    #[prost(message, repeated, tag = "1")]
    pub prestart: Vec<Hook>,
    /// Before the container is created.
    #[prost(message, repeated, tag = "2")]
    pub create_runtime: Vec<Hook>,
    /// After the container has stopped.
    #[prost(message, repeated, tag = "6")]
    pub poststop: Vec<Hook>,
}

/// A hook.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hook {
    /// The program.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its name and arguments.
    #[prost(string, repeated, tag = "2")]
    pub args: Vec<String>,
    /// Its environment.
    #[prost(string, repeated, tag = "3")]
    pub env: Vec<String>,
}

/// The part that only Linux has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxContainer {
    /// The device nodes.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<LinuxDevice>,
    /// The limits of its cgroup.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxResources>,
}

/// The limits of a container's cgroup that matter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxResources {
    /// The rules about devices.
    #[prost(message, repeated, tag = "7")]
    pub devices: Vec<DeviceRule>,
}

/// A rule about devices.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceRule {
    /// Whether it allows these devices.
    #[prost(bool, tag = "1")]
    pub allow: bool,
    /// `b`, `c`, or all: `a` or nothing.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// The major number; absent or negative: all.
    #[prost(message, optional, tag = "3")]
    pub major: Option<Number>,
    /// The minor number; absent or negative: all.
    #[prost(message, optional, tag = "4")]
    pub minor: Option<Number>,
}

/// A number that may be absent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Number {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A device node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxDevice {
    /// Its path in the container.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// A CDI device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CdiDevice {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The change of a container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Adjustment {
    /// The annotations to add.
    #[prost(map = "string, string", tag = "2")]
    pub annotations: HashMap<String, String>,
    /// The hooks to add.
    #[prost(message, optional, tag = "5")]
    pub hooks: Option<Hooks>,
}
