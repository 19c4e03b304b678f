//! The status of a claim's part of a device, as the claim has it in `status.devices`.
//! Touches: its arguments.
//! Law: a status that was written is replaced only by one that says something else.

use crate::base::quantity;
use crate::base::settings::DRIVER;
use crate::claims::gpu;
use crate::claims::prepared::PreparedShare;
use crate::report::measured::Measured;
use gpuslice_config::words::units::{Bytes, MIB};
use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

/// The condition.
const READY: &str = "Ready";

/// The version and the kind of the data.
const API_VERSION: &str = "gpuslice.io/v1";
const KIND: &str = "SliceStatus";

/// A change of `used` or `peak` by less than this part of the limit is not worth a request.
const PART: u64 = 8;

/// The condition `Ready` of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The time at which `status` last changed.
    pub since: String,
}

/// The status of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The device's name in the cluster.
    pub device: String,
    /// The id of the share.
    pub share: Option<String>,
    /// The limit.
    pub limit: Bytes,
    /// The memory in use, rounded up to whole MiB; None if unknown.
    pub used: Option<Bytes>,
    /// The highest `used` that was measured since the claim was first used on this node.
    pub peak: Option<Bytes>,
    /// The refused allocations; None if unknown.
    pub refused: Option<u64>,
    /// The fence that enforces the limit; None if unknown.
    pub fence: Option<String>,
    /// The condition.
    pub condition: Condition,
}

impl Status {
    /// The status of a share of which this was measured, after an earlier status.
    #[must_use]
    pub fn of(
        share: &PreparedShare,
        measured: Option<&Measured>,
        before: Option<&Status>,
        now: &str,
    ) -> Status {
        let used = match measured {
            Some(measured) => measured.used.map(whole),
            // Memory of ended processes may still be in the ledger; it is not in use.
            None => before.and_then(|before| before.used).map(|_| Bytes::ZERO),
        };
        let peak = before.and_then(|before| before.peak);
        let (status, reason, message) = condition(measured);
        let same = before.map(|before| &before.condition);
        let same = same.filter(|condition| condition.status == status);
        Status {
            device: gpu::name(share.uuid),
            share: share.id.as_ref().map(ToString::to_string),
            // A slice that has been resized ends with its containers, and the next one has the claim's
            // size.
            limit: measured.map_or(share.memory, |measured| measured.limit),
            used,
            peak: used.max(peak),
            refused: match measured {
                Some(measured) => measured.refused,
                None => before.and_then(|before| before.refused),
            },
            fence: match measured {
                Some(measured) => measured.fence.map(str::to_owned),
                None => before.and_then(|before| before.fence.clone()),
            },
            condition: Condition {
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                since: same.map_or_else(|| now.to_owned(), |same| same.since.clone()),
            },
        }
    }

    /// The status that the API server has, if it is such a one.
    #[must_use]
    pub fn read(from: &AllocatedDeviceStatus) -> Option<Status> {
        let data = &from.data.as_ref()?.0;
        let amount = |key: &str| {
            let text = data.get(key)?.as_str()?;
            quantity::bytes(&Quantity(text.to_owned()))
        };
        let mut conditions = from.conditions.iter().flatten();
        let condition = conditions.find(|condition| condition.type_ == READY)?;
        Some(Status {
            device: from.device.clone(),
            share: from.share_id.clone(),
            limit: amount("limit")?,
            used: amount("used"),
            peak: amount("peak"),
            refused: data.get("refused").and_then(Value::as_u64),
            fence: data.get("fence").and_then(Value::as_str).map(str::to_owned),
            condition: Condition {
                status: condition.status.clone(),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
                since: condition.last_transition_time.0.to_string(),
            },
        })
    }

    /// The entry of `status.devices`.
    #[must_use]
    pub fn entry(&self, pool: &str) -> Value {
        let amount = |amount: Bytes| json!(quantity::text(amount).0);
        let data = [
            ("apiVersion", Some(json!(API_VERSION))),
            ("kind", Some(json!(KIND))),
            ("limit", Some(amount(self.limit))),
            ("used", self.used.map(amount)),
            ("peak", self.peak.map(amount)),
            ("refused", self.refused.map(|count| json!(count))),
            ("fence", self.fence.as_ref().map(|fence| json!(fence))),
        ];
        let known = data.into_iter();
        let data: serde_json::Map<String, Value> = known
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect();
        let condition = &self.condition;
        let mut entry = json!({
            "driver": DRIVER,
            "pool": pool,
            "device": self.device,
            "conditions": [{
                "type": READY,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": condition.since,
            }],
            "data": data,
        });
        if let (Some(share), Some(entry)) = (&self.share, entry.as_object_mut()) {
            entry.insert("shareID".to_owned(), json!(share));
        }
        entry
    }

    /// Whether another status is worth a request soon. A program that refuses in a loop, or whose use
    /// goes up and down a little, causes none.
    #[must_use]
    pub fn differs_much(&self, new: &Status) -> bool {
        let step = self.limit.max(new.limit).get() / PART;
        let moved = |old: Option<Bytes>, new: Option<Bytes>| match (old, new) {
            (Some(old), Some(new)) => {
                let is_first = (old == Bytes::ZERO) != (new == Bytes::ZERO);
                is_first || old.get().abs_diff(new.get()) > step
            }
            (old, new) => old != new,
        };
        let refused = match (self.refused, new.refused) {
            (Some(old), Some(new)) => {
                (old == 0) != (new == 0) || new < old || new >= old.saturating_mul(2).max(1)
            }
            (old, new) => old != new,
        };
        let same = |status: &Status| {
            let condition = &status.condition;
            (
                status.device.clone(),
                status.share.clone(),
                status.limit,
                status.fence.clone(),
                condition.status.clone(),
                condition.reason.clone(),
                condition.message.clone(),
            )
        };
        same(self) != same(new)
            || moved(self.used, new.used)
            || moved(self.peak, new.peak)
            || refused
    }
}

/// An amount in whole MiB, rounded up.
fn whole(amount: Bytes) -> Bytes {
    Bytes::mib(amount.get().div_ceil(MIB))
}

fn condition(measured: Option<&Measured>) -> (&'static str, &'static str, String) {
    let Some(measured) = measured else {
        return ("True", "Idle", "no container uses the share".to_owned());
    };
    if let Some(without) = &measured.without {
        return ("False", "NoSlice", without.clone());
    }
    let message = match measured.fence {
        Some("driver") => "the driver refuses memory beyond the limit",
        Some("counted") => "memory beyond the limit is counted and not refused",
        Some(_) => "libgpuslice.so refuses memory beyond the limit",
        None => {
            let message =
                "the slice file cannot be read, so it is not known what enforces the limit";
            return ("Unknown", "Unread", message.to_owned());
        }
    };
    ("True", "InForce", message.to_owned())
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
