//! The messages of the kubelet's plugin services, by their field numbers in Kubernetes' own files
//! (`staging/src/k8s.io/kubelet/pkg/apis`).
//! Touches: nothing.

use std::collections::BTreeMap;

/// `InfoRequest`, `RegistrationStatusResponse` and `NodeWatchResourcesRequest`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// `PluginInfo` of pluginregistration v1.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    /// The kind of plugin: `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The driver's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The socket of the driver's services.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// The services.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// `RegistrationStatus` of pluginregistration v1.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    /// Whether the kubelet has registered the plugin.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A claim, of DRA v1 and v1beta1.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claim {
    /// Its namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its uid.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `NodePrepareResourcesRequest` and `NodeUnprepareResourcesRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claims {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// `NodePrepareResourcesResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Prepared {
    /// The outcome for each claim, by its uid.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, PreparedClaim>,
}

/// `NodePrepareResourceResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreparedClaim {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Why the claim is not prepared.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A prepared device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    /// The requests of the claim.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// The pool.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// The device.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// The CDI devices.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// The share of the device.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// `NodeUnprepareResourcesResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unprepared {
    /// The outcome for each claim, by its uid.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, UnpreparedClaim>,
}

/// `NodeUnprepareResourceResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UnpreparedClaim {
    /// Why the claim is not taken back.
    #[prost(string, tag = "1")]
    pub error: String,
}

/// `DeviceIdentifier` of dra-health.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeviceIdentifier {
    /// The pool.
    #[prost(string, tag = "1")]
    pub pool_name: String,
    /// The device.
    #[prost(string, tag = "2")]
    pub device_name: String,
}

/// `HealthStatus` of dra-health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Health {
    /// It cannot be determined.
    Unknown = 0,
    /// The device works.
    Healthy = 1,
    /// The device has a problem.
    Unhealthy = 2,
}

/// `DeviceHealth` of dra-health. The first version has no message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeviceHealth {
    /// The device.
    #[prost(message, optional, tag = "1")]
    pub device: Option<DeviceIdentifier>,
    /// Its health.
    #[prost(enumeration = "Health", tag = "2")]
    pub health: i32,
    /// When that was determined, in seconds since 1970.
    #[prost(int64, tag = "3")]
    pub last_updated_time: i64,
    /// A sentence.
    #[prost(string, tag = "5")]
    pub message: String,
}

/// `NodeWatchResourcesResponse` of dra-health.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DevicesHealth {
    /// All devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<DeviceHealth>,
}
