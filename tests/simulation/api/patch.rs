//! Patches as the operator sends them.

use serde_json::Value;

use super::store::{Id, Refusal, Store, deleting, finalizers, uid};
use std::sync::Arc;

/// Server-side apply of a status by the only one who applies it: what was applied before and is not now goes.
pub fn apply_status(store: &mut Store, id: &Id, body: &Value) -> Result<Arc<Value>, Refusal> {
    let object = store.get(id).ok_or((404, "NotFound"))?;
    if body["metadata"]["uid"].as_str().is_some_and(|wanted| wanted != uid(object)) {
        return Err((409, "Conflict"));
    }
    let status = body["status"].clone();
    store.update(id, |object| object["status"] = status)
}

/// Server-side apply of an object by the only one who applies it; made where it is missing.
pub fn apply(store: &mut Store, id: &Id, body: &Value) -> Result<Arc<Value>, Refusal> {
    let wanted = body["metadata"]["uid"].as_str();
    let Some(object) = store.get(id) else {
        // Who knows its uid means one that is gone.
        return if wanted.is_some() { Err((409, "Conflict")) } else { store.create(id, body) };
    };
    if wanted.is_some_and(|wanted| wanted != uid(object)) {
        return Err((409, "Conflict"));
    }
    store.update(id, |object| merge(object, body))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Deletes an object, where it is still the one that is meant.
pub fn delete(store: &mut Store, id: &Id, wanted: &Value) -> Result<String, Refusal> {
    let object = store.get(id).ok_or((404, "NotFound"))?;
    let differs = |name| wanted[name].as_str().is_some_and(|wanted| object["metadata"][name] != wanted);
    if differs("uid") || differs("resourceVersion") {
        return Err((409, "Conflict"));
    }
    store.delete(id)?;
    Ok(r#"{"apiVersion":"v1","kind":"Status","status":"Success"}"#.to_owned())
}

/// A JSON patch, of which all operations succeed or none.
pub fn json_patch(store: &mut Store, id: &Id, operations: &Value) -> Result<Arc<Value>, Refusal> {
    let before = Arc::clone(store.get(id).ok_or((404, "NotFound"))?);
    let mut after = (*before).clone();
    for operation in operations.as_array().ok_or((400, "BadRequest"))? {
        step(&mut after, operation)?;
    }
    let known = finalizers(&before);
    if deleting(&before) && finalizers(&after).iter().any(|name| !known.contains(name)) {
        return Err((422, "Invalid"));
    }
    store.update(id, |object| *object = after)
}

fn step(object: &mut Value, operation: &Value) -> Result<(), Refusal> {
    let invalid = (422, "Invalid");
    let path = operation["path"].as_str().ok_or(invalid)?;
    let (parent, last) = path.rsplit_once('/').ok_or(invalid)?;
    match operation["op"].as_str() {
        Some("test") => {
            let there = object.pointer(path).unwrap_or(&Value::Null);
            if *there == operation["value"] { Ok(()) } else { Err(invalid) }
        }
        Some("add") => {
            let value = operation["value"].clone();
            match object.pointer_mut(parent).ok_or(invalid)? {
                Value::Object(members) => {
                    members.insert(last.to_owned(), value);
                }
                Value::Array(list) if last == "-" => list.push(value),
                Value::Array(list) => {
                    let at = last.parse().ok().filter(|at| *at <= list.len()).ok_or(invalid)?;
                    list.insert(at, value);
                }
                _ => return Err(invalid),
            }
            Ok(())
        }
        Some("remove") => match object.pointer_mut(parent).ok_or(invalid)? {
            Value::Object(members) => members.remove(last).map(|_| ()).ok_or(invalid),
            Value::Array(list) => {
                let at = last.parse().ok().filter(|at| *at < list.len()).ok_or(invalid)?;
                list.remove(at);
                Ok(())
            }
            _ => Err(invalid),
        },
        _ => Err(invalid),
    }
}
