//! Identifies a container among others by its name, pod and namespace, as engines record them.
//! Touches: its arguments.
//! Law: engines let images write annotations (podman before 4.6 copies them), so no identity may
//! grant more than the policy grants to every container.

use gpuslice_host::machine::pod::Pod;
use std::collections::BTreeMap;

/// Annotations, by name.
pub type Annotations = BTreeMap<String, String>;

/// The annotations with a container's name: containerd, CRI-O and podman, the kubelet.
const NAMES: [&str; 2] = [
    "io.kubernetes.cri.container-name",
    "io.kubernetes.container.name",
];
const NAMESPACES: [&str; 2] = [
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.pod.namespace",
];
const PODS: [&str; 2] = ["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"];
const UIDS: [&str; 2] = ["io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"];
const SANDBOXES: [&str; 2] = ["io.kubernetes.cri.sandbox-id", CRI_O_SANDBOX];
const TYPES: [&str; 2] = [
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri-o.ContainerType",
];

/// The annotation with the pod's id, which only CRI-O writes. CRI-O copies a pod's annotations into
/// the container's configuration, so the pod's author chooses the values of containerd's keys there.
const CRI_O_SANDBOX: &str = "io.kubernetes.cri-o.SandboxID";

/// The most letters of a name in Kubernetes. An image may write longer annotations.
const LONGEST: usize = 253;

/// The annotation in which CRI-O keeps the container's metadata from the request, in JSON.
const METADATA: &str = "io.kubernetes.cri-o.Metadata";

fn metadata_name(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        name: String,
    }
    let metadata: Metadata = serde_json::from_str(text).ok()?;
    Some(metadata.name).filter(|name| !name.is_empty())
}

/// The identity of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub id: String,
    /// Its name in its pod.
    pub name: Option<String>,
    /// Its pod's name.
    pub pod: Option<String>,
    /// Its pod's namespace.
    pub namespace: Option<String>,
    /// Its pod's uid.
    pub uid: Option<String>,
    /// Its pod's id.
    pub sandbox: Option<String>,
    /// Whether it only holds the pod's namespaces.
    pub is_sandbox: bool,
}

impl Identity {
    /// Reads the identity from the annotations.
    #[must_use]
    pub fn of(id: &str, annotations: &Annotations) -> Identity {
        let sandbox = annotations.get(CRI_O_SANDBOX);
        let is_cri_o = sandbox.is_some_and(|id| !id.is_empty());
        let first = |keys: [&str; 2]| {
            let keys = keys.into_iter().skip(usize::from(is_cri_o));
            let mut values = keys.filter_map(|key| annotations.get(key));
            values.find(|value| !value.is_empty()).cloned()
        };
        // A kubelet labels its containers. For others, CRI-O repeats the request's metadata.
        let name = first(NAMES).or_else(|| metadata_name(annotations.get(METADATA)?));
        let sandbox = first(SANDBOXES);
        // An image that calls itself a sandbox cannot know the id that it will have.
        let own_sandbox = sandbox.as_deref() == Some(id);
        Identity {
            id: id.to_owned(),
            name,
            pod: first(PODS),
            namespace: first(NAMESPACES),
            uid: first(UIDS),
            is_sandbox: own_sandbox && first(TYPES).as_deref() == Some("sandbox"),
            sandbox,
        }
    }

    /// Its place in Kubernetes, for records; None for a container of no pod.
    #[must_use]
    pub fn place(&self) -> Option<Pod> {
        self.pod.as_ref()?;
        let [namespace, name, uid, container] = [&self.namespace, &self.pod, &self.uid, &self.name]
            .map(|part| {
                let part = part.as_deref().unwrap_or_default();
                part.chars().take(LONGEST).collect()
            });
        Some(Pod {
            namespace,
            name,
            uid,
            container,
        })
    }

    /// The display name: `namespace/pod/name`, or its id.
    #[must_use]
    pub fn title(&self) -> String {
        let parts = [&self.namespace, &self.pod, &self.name];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        let title = match self.name {
            Some(_) => parts.join("/"),
            None => self.id.clone(),
        };
        // The reader of slice files does not support escapes.
        let strange = |letter: char| letter.is_control() || letter == '"' || letter == '\\';
        title.replace(strange, "_").chars().take(100).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn containerd_and_cri_o_say_the_same_in_other_words() {
        let containerd = annotations(&[
            ("io.kubernetes.cri.container-name", "server"),
            ("io.kubernetes.cri.container-type", "container"),
            ("io.kubernetes.cri.sandbox-id", "abc"),
            ("io.kubernetes.cri.sandbox-name", "web"),
            ("io.kubernetes.cri.sandbox-namespace", "team"),
            ("io.kubernetes.cri.sandbox-uid", "a-b"),
        ]);
        let crio = annotations(&[
            ("io.kubernetes.container.name", "server"),
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.cri-o.SandboxID", "abc"),
            ("io.kubernetes.pod.name", "web"),
            ("io.kubernetes.pod.namespace", "team"),
            ("io.kubernetes.pod.uid", "a-b"),
        ]);
        let identity = Identity::of("id", &containerd);
        assert_eq!(identity, Identity::of("id", &crio));
        assert_eq!(identity.title(), "team/web/server");
        assert!(!identity.is_sandbox);
        assert_eq!(Identity::of("id", &Annotations::new()).title(), "id");
        assert_eq!(Identity::of("id", &Annotations::new()).place(), None);
        let place = Pod {
            namespace: "team".to_owned(),
            name: "web".to_owned(),
            uid: "a-b".to_owned(),
            container: "server".to_owned(),
        };
        assert_eq!(identity.place(), Some(place));
    }

    #[test]
    fn a_container_that_no_kubelet_has_labelled_has_its_name_from_cri_o() {
        let metadata = (
            "io.kubernetes.cri-o.Metadata",
            r#"{"name":"server","attempt":0}"#,
        );
        let name = |pairs: &[(&str, &str)]| Identity::of("id", &annotations(pairs)).name;
        assert_eq!(name(&[metadata]).as_deref(), Some("server"));
        let labelled = ("io.kubernetes.container.name", "web");
        assert_eq!(name(&[metadata, labelled]).as_deref(), Some("web"));
        assert_eq!(name(&[("io.kubernetes.cri-o.Metadata", "{")]), None);
    }

    #[test]
    fn a_pod_of_cri_o_cannot_call_itself_another_pod() {
        let cri_o = [
            ("io.kubernetes.container.name", "server"),
            ("io.kubernetes.cri-o.ContainerType", "container"),
            ("io.kubernetes.cri-o.SandboxID", "abc"),
            ("io.kubernetes.pod.name", "web"),
            ("io.kubernetes.pod.namespace", "team"),
            ("io.kubernetes.pod.uid", "a-b"),
        ];
        let forged = [
            ("io.kubernetes.cri.container-name", "dns"),
            ("io.kubernetes.cri.container-type", "sandbox"),
            ("io.kubernetes.cri.sandbox-id", "id"),
            ("io.kubernetes.cri.sandbox-name", "coredns"),
            ("io.kubernetes.cri.sandbox-namespace", "kube-system"),
            ("io.kubernetes.cri.sandbox-uid", "c-d"),
        ];
        let own = Identity::of("id", &annotations(&cri_o));
        let both = annotations(&[cri_o, forged].concat());
        assert_eq!(Identity::of("id", &both), own);
        assert_eq!(own.title(), "team/web/server");
        // A key that CRI-O does not write gives no value.
        let few = annotations(&[&cri_o[2..3], &forged[..]].concat());
        assert_eq!(Identity::of("id", &few).namespace, None);
    }

    #[test]
    fn an_image_cannot_call_itself_a_sandbox() {
        let forged = [
            ("io.kubernetes.cri.container-type", "sandbox"),
            ("io.kubernetes.cri.sandbox-id", "guessed"),
        ];
        assert!(!Identity::of("real", &annotations(&forged)).is_sandbox);
        assert!(Identity::of("guessed", &annotations(&forged)).is_sandbox);
        assert!(!Identity::of("real", &annotations(&forged[..1])).is_sandbox);
    }
}
