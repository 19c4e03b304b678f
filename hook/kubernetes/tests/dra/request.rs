//! A request by the words of RBAC: verb, API group and resource.
//! Touches: its arguments.

use crate::http_server::Asked;

/// The object that a path names.
pub struct Target<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

impl Target<'_> {
    pub fn of(path: &str) -> Target<'_> {
        let mut parts = path.split('/').skip(1);
        let mut next = || parts.next().unwrap_or_default();
        let group = match next() {
            "apis" => next(),
            _ => "",
        };
        let _version = next();
        let mut resource = next();
        let mut namespace = "";
        if resource == "namespaces" {
            (namespace, resource) = (next(), next());
        }
        Target {
            group,
            resource,
            namespace,
            name: next(),
            subresource: next(),
        }
    }

    /// The resource, with its subresource.
    pub fn resource(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            sub => format!("{}/{sub}", self.resource),
        }
    }

    /// The verb of a request for it.
    pub fn verb(&self, asked: &Asked) -> &'static str {
        match asked.method.as_str() {
            "GET" if asked.query("watch").is_some() => "watch",
            "GET" if self.name.is_empty() => "list",
            "GET" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            other => panic!("no verb of RBAC: {other}"),
        }
    }

    /// The permissions that a request needs, as `group resource verb`. Since Kubernetes 1.36 the
    /// status of a driver's devices needs one of its own.
    pub fn permissions(&self, asked: &Asked) -> Vec<String> {
        let group = if self.group.is_empty() {
            "core"
        } else {
            self.group
        };
        let (resource, verb) = (self.resource(), self.verb(asked));
        let mut needed = vec![format!("{group} {resource} {verb}")];
        if resource == "resourceclaims/status" {
            needed.push(format!(
                "{group} resourceclaims/driver associated-node:{verb}"
            ));
        }
        needed
    }
}
