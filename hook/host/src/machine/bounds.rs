//! Computes how much of a GPU the policy lets a container, or a namespace, have.
//! Touches: its arguments.

use crate::machine::policy::{Maximum, Policy};
use gpuslice_config::words::units::Bytes;

impl Policy {
    /// The most that one container may have of one GPU. A namespace's own rule can only lower it,
    /// because the namespace comes from an annotation, which an image can forge.
    #[must_use]
    pub fn container_maximum(&self, namespace: Option<&str>) -> Option<Bytes> {
        smaller(self.maximum.container, self.of(namespace).container)
    }

    /// The most that the containers of one namespace may have of one GPU.
    #[must_use]
    pub fn namespace_maximum(&self, namespace: Option<&str>) -> Option<Bytes> {
        smaller(self.maximum.namespace, self.of(namespace).namespace)
    }

    /// The most that a container may have of each GPU if it requests nothing: the default, lowered to
    /// what it and its namespace may have. `None`: no limit.
    #[must_use]
    pub fn unrequested(&self, namespace: Option<&str>) -> Option<Bytes> {
        let default = self.default.as_ref().map(|default| default.memory);
        let most = smaller(
            self.container_maximum(namespace),
            self.namespace_maximum(namespace),
        );
        smaller(default, most)
    }

    /// Whether the policy has a maximum, at least for one namespace.
    #[must_use]
    pub fn bounds_any(&self) -> bool {
        let mut maxima = self.namespaces.values().chain([&self.maximum]);
        maxima.any(|maximum| *maximum != Maximum::default())
    }

    /// Whether the policy limits containers that request nothing, or refuses them.
    #[must_use]
    pub fn rules_unrequested(&self) -> bool {
        self.default.is_some() || self.deny_unannotated || self.bounds_any()
    }

    fn of(&self, namespace: Option<&str>) -> Maximum {
        let named = namespace.and_then(|namespace| self.namespaces.get(namespace));
        named.copied().unwrap_or_default()
    }
}

fn smaller(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.at_most(other)),
        (one, other) => one.or(other),
    }
}
