//! Who else writes the status of an Ingress, as its `managedFields` say.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// What the field managers of edges begin with; a RouterConfig's own follows.
pub const PREFIX: &str = "waystation-edge-";

/// The field manager other than `ours` that wrote `status.loadBalancer` last.
pub fn rival(meta: &ObjectMeta, ours: &str) -> Option<String> {
    let writes = |entry: &&ManagedFieldsEntry| {
        let status = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:status"));
        status.is_some_and(|status| status.get("f:loadBalancer").is_some())
    };
    let entries = meta.managed_fields.iter().flatten().filter(writes);
    let named = entries.filter_map(|entry| Some((entry.time.as_ref().map(|time| time.0), entry.manager.as_ref()?)));
    let others = named.filter(|(_, manager)| *manager != ours);
    others.max_by_key(|(time, _)| *time).map(|(_, manager)| manager.clone())
}

/// What people can do about it.
pub fn advice(rival: &str) -> &'static str {
    match rival.starts_with(PREFIX) {
        true => {
            "it is the edge of another RouterConfig that serves the same class; give each a class of its own \
             (spec.edge.ingressClassName), or the same spec.edge.publish"
        }
        false => {
            "leave it to one of them; either that controller no longer writes statuses of this class, or spec.edge.publish \
             is taken out of the RouterConfig"
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(entries: serde_json::Value) -> ObjectMeta {
        serde_json::from_value(json!({ "name": "a", "managedFields": entries })).unwrap()
    }

    fn entry(manager: &str, time: &str, fields: serde_json::Value) -> serde_json::Value {
        json!({ "manager": manager, "operation": "Apply", "apiVersion": "networking.k8s.io/v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": fields })
    }

    #[test]
    fn the_last_other_one_who_wrote_addresses_is_named() {
        let (addresses, other) =
            (json!({ "f:status": { "f:loadBalancer": { "f:ingress": {} } } }), json!({ "f:spec": {} }));
        let entries = json!([
            entry("kubectl", "2026-01-01T00:00:09Z", other),
            entry("old", "2026-01-01T00:00:01Z", addresses.clone()),
            entry("new", "2026-01-01T00:00:03Z", addresses.clone()),
            entry("ours", "2026-01-01T00:00:08Z", addresses),
        ]);
        assert_eq!(rival(&meta(entries), "ours").as_deref(), Some("new"));
        assert_eq!(rival(&meta(json!([])), "ours"), None);
        assert!(
            advice("waystation-edge-00ff").contains("ingressClassName")
                && !advice("nginx").contains("RouterConfig that")
        );
    }
}
