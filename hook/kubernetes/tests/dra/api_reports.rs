//! The API server's side of reports: the status of a claim's devices by server-side apply, and events.
//! Touches: its arguments.

use crate::api_server::{Kept, refusal};
use crate::http_server::{Answer, Asked};
use crate::request::Target;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub fn answer(kept: &mut Kept, asked: &Asked, target: &Target<'_>) -> Answer {
    if kept.forbids_reports {
        let what = format!(
            "{0} is forbidden: User \"driver\" cannot write resource \"{0}\"",
            target.resource()
        );
        return refusal(403, "Forbidden", &what);
    }
    if kept.denies.as_deref() == Some(target.namespace) {
        let what = "events \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";
        return refusal(403, "Forbidden", what);
    }
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    let resource = target.resource();
    match (resource.as_str(), asked.method.as_str()) {
        ("resourceclaims/status", "PATCH") => status(kept, asked, target, &body),
        ("events", "POST") => created(kept, target, body),
        ("events", "PATCH") => changed(kept, asked, target, &body),
        other => panic!("{other:?}"),
    }
}

/// Whether a value is read without loss by the type that Kubernetes has for it.
fn is_exactly<T: Serialize + DeserializeOwned>(value: &Value) -> bool {
    let read = serde_json::from_value::<T>(value.clone());
    read.is_ok_and(|read| serde_json::to_value(read).unwrap() == *value)
}

/// The fields that identify an entry of `status.devices` in its list.
fn key(device: &Value) -> [Value; 4] {
    ["driver", "pool", "device", "shareID"].map(|key| device[key].clone())
}

/// The rule that an applied entry breaks, if any.
fn broken(claim: &Value, device: &Value) -> Option<String> {
    if !is_exactly::<AllocatedDeviceStatus>(device) {
        return Some(format!("unknown fields: {device}"));
    }
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    if !results
        .unwrap()
        .iter()
        .any(|result| key(result) == key(device))
    {
        return Some(format!("not an allocated device: {device}"));
    }
    if device["data"].to_string().len() > 10 << 10 || !device["data"].is_object() {
        return Some("data".to_owned());
    }
    let conditions = device["conditions"].as_array().unwrap();
    let is_word = |text: &Value| {
        let text = text.as_str().unwrap();
        !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_alphanumeric())
    };
    let is_good = |condition: &Value| {
        is_word(&condition["type"])
            && is_word(&condition["reason"])
            && ["True", "False", "Unknown"].contains(&condition["status"].as_str().unwrap())
            && condition["message"].as_str().unwrap().len() <= 32_768
    };
    let is_good = conditions.len() <= 8 && conditions.iter().all(is_good);
    (!is_good).then(|| format!("conditions: {device}"))
}

fn status(kept: &mut Kept, asked: &Asked, target: &Target<'_>, body: &Value) -> Answer {
    assert_eq!(asked.content_type, "application/apply-patch+yaml");
    assert_eq!(asked.query("fieldManager"), Some("gpuslice.io"));
    assert_eq!(asked.query("force"), Some("true"));
    let name = (target.namespace.to_owned(), target.name.to_owned());
    let Some(claim) = kept.claims.get_mut(&name) else {
        return refusal(404, "NotFound", "not found");
    };
    let metadata = json!({
        "name": target.name, "namespace": target.namespace, "uid": claim["metadata"]["uid"],
    });
    if body["metadata"] != metadata {
        return refusal(
            409,
            "Conflict",
            "Precondition failed: UID in precondition: a, UID in object meta: b",
        );
    }
    if kept.conflicts > 0 {
        kept.conflicts -= 1;
        let what = "Operation cannot be fulfilled: the object has been modified";
        return refusal(409, "Conflict", what);
    }
    let devices = body["status"]["devices"].as_array().unwrap();
    let applied = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
        "status": {"devices": devices},
    });
    assert_eq!(*body, applied, "other fields are others' business");
    if let Some(broken) = devices.iter().find_map(|device| broken(claim, device)) {
        return refusal(422, "Invalid", &broken);
    }
    let old = claim["status"]["devices"].as_array().cloned();
    let others = old.unwrap_or_default().into_iter();
    let others = others.filter(|device| device["driver"] != "gpuslice.io");
    let all: Vec<Value> = others.chain(devices.iter().cloned()).collect();
    claim["status"]["devices"] = json!(all);
    Answer::Whole(200, claim.clone())
}

fn created(kept: &mut Kept, target: &Target<'_>, body: Value) -> Answer {
    assert!(is_exactly::<Event>(&body), "{body}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(body["involvedObject"]["namespace"], target.namespace);
    assert!(body["message"].as_str().unwrap().len() <= 1024);
    let name = (target.namespace.to_owned(), text(&body["metadata"]["name"]));
    if kept.events.contains_key(&name) {
        return refusal(409, "AlreadyExists", "already exists");
    }
    kept.events.insert(name, body.clone());
    Answer::Whole(201, body)
}

fn changed(kept: &mut Kept, asked: &Asked, target: &Target<'_>, body: &Value) -> Answer {
    assert_eq!(asked.content_type, "application/merge-patch+json");
    let name = (target.namespace.to_owned(), target.name.to_owned());
    let Some(event) = kept.events.get_mut(&name) else {
        return refusal(404, "NotFound", "not found");
    };
    for (key, value) in body.as_object().unwrap() {
        event[key] = value.clone();
    }
    assert!(is_exactly::<Event>(event), "{event}");
    Answer::Whole(200, event.clone())
}
