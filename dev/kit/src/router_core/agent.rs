//! The second agent: listeners, connectors, TLS profiles and vhosts, and the questions about the schema. Slower and
//! stricter than the core.

use serde_amqp::Value;

use super::schema::{self, EntityType, Kind, Set};
use super::value::{
    Attributes, as_integer, as_text, attributes, empty, map, plain, quote, quoted, quoted_list, text, texts,
};
use super::{Answer, Connector, Core, Event, Flavour, Request, Rights};

/// An entity: its attributes, in the order in which they were told and completed.
#[derive(Debug, Clone)]
struct Entity {
    kind: &'static EntityType,
    attributes: Attributes,
    /// Of the configuration file: it is there again after a restart.
    file: bool,
}

impl Entity {
    fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).and_then(as_text)
    }

    fn body(&self) -> Value {
        map(self.attributes.iter().map(|(name, value)| (name.clone(), value.clone())))
    }

    /// As it is quoted in refusals: with everything, passwords too.
    fn quoted(&self) -> String {
        let mut all: Vec<_> = self.attributes.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
        all.sort();
        let mut name = self.kind.short.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{name}Entity({})", all.join(", "))
    }
}

/// Entities of the second agent, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Agent {
    entities: Vec<Entity>,
}

impl Agent {
    pub(super) fn keep_file_entities(&mut self, old: Self) {
        self.entities = old.entities.into_iter().filter(|entity| entity.file).collect();
    }

    pub(super) fn file<'a>(&mut self, flavour: Flavour, kind: &str, told: impl IntoIterator<Item = (&'a str, Value)>) {
        let Some(kind) = schema::find(flavour, kind) else { return };
        let told = told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let Ok(attributes) = complete(flavour, kind, told) {
            self.entities.push(Entity { kind, attributes, file: true });
        }
    }

    /// Every entity, one a line, without passwords.
    pub(super) fn listing(&self) -> impl Iterator<Item = String> {
        self.entities.iter().map(|entity| {
            let status = entity.text("connectionStatus").map(|status| format!(" {status}")).unwrap_or_default();
            format!("{} {}{status}", entity.kind.name, entity.text("name").unwrap_or_default())
        })
    }

    fn set(&mut self, connector: &str, name: &str, value: &str) {
        let wanted = |entity: &&mut Entity| entity.kind.name == "connector" && entity.text("name") == Some(connector);
        if let Some(entity) = self.entities.iter_mut().find(wanted) {
            entity.attributes.insert(name.to_owned(), text(value));
        }
    }
}

impl Core {
    pub(super) fn call_agent(&mut self, request: &Request) -> Answer {
        let result = match request.operation.as_str() {
            "" => Err((400, "No 'operation' property: None".to_owned())),
            "CREATE" => self.create_entity(request),
            _ => self.on_entity(request),
        };
        let answer = match result {
            Ok((status, body)) => {
                let word = match status {
                    201 => "Created",
                    204 => "No Content",
                    _ => "OK",
                };
                Answer::new(status, word, body)
            }
            Err((status, words)) => Answer::new(status, words, empty()),
        };
        Answer { echoes_any_id: false, ..answer }
    }

    fn create_entity(&mut self, request: &Request) -> Result<(i32, Value), (i32, String)> {
        if let Some(refused) = self.refusal(request) {
            return Err((refused.status, refused.description));
        }
        let bad = |words: String| (400, words);
        let mut told = attributes(&request.body).unwrap_or_default();
        for (key, value) in [("type", &request.entity_type), ("name", &request.name)] {
            match value {
                Some(value) if told.get(key).and_then(as_text).is_some_and(|other| other != value.as_str()) => {
                    return Err(bad(format!("Conflicting values for '{key}'")));
                }
                Some(value) => drop(told.insert(key.to_owned(), text(value))),
                // A name that only the body has is lost.
                None => drop(told.swap_remove(key)),
            }
        }
        let Some(name) = &request.entity_type else {
            return Err(bad("No 'type' attribute in {}".to_owned()));
        };
        let kind = self.known(name)?;
        if !kind.operations(self.flavour).contains(&"CREATE") {
            return Err(self.not_implemented("CREATE", kind));
        }
        for key in told.keys() {
            match kind.attribute(self.flavour, key) {
                None => return Err(bad(self.unknown_attribute(kind, key))),
                Some(attribute) if attribute.set == Set::Never => {
                    return Err(bad(format!("Cannot set attribute '{key}' in CREATE")));
                }
                Some(_) => {}
            }
        }
        let attributes = complete(self.flavour, kind, told).map_err(bad)?;
        let mut entity = Entity { kind, attributes, file: false };
        self.check_unique(&entity).map_err(bad)?;
        self.check_policy(&entity).map_err(|words| (500, format!("PolicyError: {words}")))?;
        let event = match kind.name {
            "connector" => {
                entity.attributes.insert("failoverUrls".to_owned(), text(&format!("amqp://{}", host_port(&entity))));
                entity.attributes.insert("connectionStatus".to_owned(), text("CONNECTING"));
                entity.attributes.insert("connectionMsg".to_owned(), text(""));
                Some(Event::ConnectorMade(Box::new(connector(&entity))))
            }
            "listener" => Some(Event::ListenerMade {
                name: entity.text("name").unwrap_or_default().to_owned(),
                host: entity.text("host").unwrap_or_default().to_owned(),
                port: entity.text("port").unwrap_or_default().to_owned(),
                multi_tenant: entity.attributes.get("multiTenant") == Some(&Value::Bool(true)),
            }),
            _ => None,
        };
        let body = entity.body();
        self.agent.entities.push(entity);
        self.changed(event);
        Ok((201, body))
    }

    fn check_unique(&self, entity: &Entity) -> Result<(), String> {
        // The older of two of one name is looked at first, and its name before its identity.
        for other in &self.agent.entities {
            let same = ["name", "identity"].into_iter().find(|key| {
                entity.attributes.contains_key(*key) && entity.attributes.get(*key) == other.attributes.get(*key)
            });
            if let Some(key) = same {
                return Err(format!(
                    "adding {} duplicates unique attribute '{key}' from existing {}",
                    entity.quoted(),
                    other.quoted()
                ));
            }
        }
        Ok(())
    }

    /// What the policy does not take is no bad request but an error inside.
    fn check_policy(&self, vhost: &Entity) -> Result<(), String> {
        let hostname = vhost.text("hostname").unwrap_or_default();
        let defaults = match vhost.attributes.get("groups") {
            Some(Value::Map(groups)) => groups.get(&Value::from("$default")).is_some(),
            _ => false,
        };
        if vhost.attributes.get("allowUnknownUser") == Some(&Value::Bool(true)) && !defaults {
            return Err(format!(
                "Policy '{hostname}' is invalid: Policy vhost '{hostname}' allows connections by default but default \
                 settings are not defined"
            ));
        }
        let aliases = |entity: &Entity| -> Vec<String> {
            entity.text("aliases").unwrap_or_default().split(',').map(|alias| alias.trim().to_owned()).collect()
        };
        for other in self.agent.entities.iter().filter(|other| other.kind.name == "vhost") {
            let taken = aliases(other);
            if let Some(alias) = aliases(vhost).iter().find(|alias| !alias.is_empty() && taken.contains(*alias)) {
                let other = other.text("hostname").unwrap_or_default();
                return Err(format!(
                    "Policy for vhost '{hostname}' alias '{alias}' conflicts with existing alias for vhost '{other}'"
                ));
            }
        }
        Ok(())
    }

    fn on_entity(&mut self, request: &Request) -> Result<(i32, Value), (i32, String)> {
        let operation = request.operation.as_str();
        let asked = request.entity_type.as_deref().map(|name| self.known(name)).transpose()?;
        let (key, value) = match (&request.name, &request.identity) {
            (Some(name), _) => ("name", name),
            (None, Some(identity)) => ("identity", identity),
            (None, None) => {
                return match asked {
                    None => self.on_management(request),
                    Some(kind) if kind.name == "management" => self.on_management(request),
                    Some(kind) => Err((400, format!("{}: No name or identity provided", kind.full_name(self.flavour)))),
                };
            }
        };
        if value == "self" {
            return self.on_management(request);
        }
        let found = self.agent.entities.iter().position(|entity| entity.text(key) == Some(value.as_str()));
        let position = found.ok_or_else(|| (404, format!("No entity with {key}={value}")))?;
        let entity = &self.agent.entities[position];
        if let Some(asked) = asked.filter(|asked| asked.name != entity.kind.name) {
            return Err((
                400,
                format!(
                    "Entity type '{}' does not extend requested type '{}'",
                    entity.kind.full_name(self.flavour),
                    asked.full_name(self.flavour)
                ),
            ));
        }
        if !entity.kind.operations(self.flavour).contains(&operation) {
            return Err(self.not_implemented(operation, entity.kind));
        }
        match operation {
            "DELETE" => self.delete_entity(request, position),
            "UPDATE" => self.update_entity(request, position),
            _ => Ok((200, entity.body())),
        }
    }

    fn delete_entity(&mut self, request: &Request, position: usize) -> Result<(i32, Value), (i32, String)> {
        if let Some(refused) = self.refusal(request) {
            return Err((refused.status, refused.description));
        }
        let entity = self.agent.entities.remove(position);
        let name = entity.text("name").unwrap_or_default().to_owned();
        let event = match entity.kind.name {
            "connector" => Some(Event::ConnectorGone(name)),
            "listener" => Some(Event::ListenerGone(name)),
            _ => None,
        };
        self.changed(event);
        Ok((204, empty()))
    }

    fn update_entity(&mut self, request: &Request, position: usize) -> Result<(i32, Value), (i32, String)> {
        let told = attributes(&request.body).unwrap_or_default();
        let entity = &self.agent.entities[position];
        let kind = entity.kind;
        let newest = self.flavour == Flavour::Skrouterd && kind.name == "sslProfile";
        for (key, value) in &told {
            let Some(attribute) = kind.attribute(self.flavour, key) else {
                return Err((400, self.unknown_attribute(kind, key)));
            };
            if !newest && attribute.set != Set::Always && entity.attributes.get(key) != Some(value) {
                return Err((400, format!("Cannot update attribute '{key}' in UPDATE")));
            }
        }
        let mut merged = entity.attributes.clone();
        for (key, value) in told {
            merged.insert(key, value);
        }
        let attributes = complete(self.flavour, kind, merged).map_err(|words| (400, words))?;
        self.agent.entities[position].attributes = attributes;
        self.changed(None);
        Ok((200, self.agent.entities[position].body()))
    }

    fn on_management(&mut self, request: &Request) -> Result<(i32, Value), (i32, String)> {
        let flavour = self.flavour;
        let of_type = request.queried_type.as_deref().map(|name| self.known(name)).transpose()?;
        let each = |answer: &dyn Fn(&EntityType) -> Value| {
            let wanted = schema::types(flavour).filter(|kind| of_type.is_none_or(|of| of.name == kind.name));
            map(wanted.map(|kind| (kind.full_name(flavour), answer(kind))))
        };
        let body = match request.operation.as_str() {
            "QUERY" => return self.query_entities(request, of_type),
            "GET-SCHEMA" => schema::dump_all(flavour),
            "GET-TYPES" => each(&|kind| kind.bases(flavour)),
            "GET-ATTRIBUTES" => each(&|kind| texts(kind.attributes(flavour).map(|attribute| attribute.name))),
            "GET-OPERATIONS" => each(&|kind| texts(kind.operations(flavour).iter().copied())),
            "GET-ANNOTATIONS" => empty(),
            "GET-MGMT-NODES" => Value::List(vec![Value::String(format!("amqp:/_topo/0/{}/$management", self.id))]),
            "READ" => map([
                ("name".to_owned(), text("self")),
                ("identity".to_owned(), text("self")),
                ("type".to_owned(), Value::String(format!("{}.management", flavour.prefix()))),
            ]),
            other => {
                let kind = schema::find(flavour, "management");
                let refused = kind.map(|kind| self.not_implemented(other, kind));
                return Err(refused.unwrap_or((501, "Not Implemented".to_owned())));
            }
        };
        Ok((200, body))
    }

    /// All rows, whatever `offset` and `count` say.
    fn query_entities(&self, request: &Request, of_type: Option<&EntityType>) -> Result<(i32, Value), (i32, String)> {
        let known: Vec<&str> = match of_type {
            Some(kind) => kind.attributes(self.flavour).map(|attribute| attribute.name).collect(),
            None => vec!["name", "identity", "type"],
        };
        let asked = attributes(&request.body).unwrap_or_default();
        let names: Vec<&str> = match asked.get("attributeNames") {
            Some(Value::List(names)) if !names.is_empty() => names.iter().filter_map(as_text).collect(),
            _ => known.clone(),
        };
        let unknown: Vec<&str> = names.iter().copied().filter(|name| !known.contains(name)).collect();
        if let (false, Some(kind)) = (unknown.is_empty(), of_type) {
            let kind = kind.full_name(self.flavour);
            return Err((404, format!("Unknown attributes {} for type {kind}.", quoted_list(&unknown))));
        }
        let rows = self
            .agent
            .entities
            .iter()
            .filter(|entity| of_type.is_none_or(|kind| kind.name == entity.kind.name))
            .map(|entity| names.iter().map(|name| entity.attributes.get(*name).cloned().unwrap_or_default()).collect())
            .filter(|row: &Vec<Value>| row.iter().any(|value| *value != Value::Null));
        let rows: Vec<Value> = rows.map(Value::List).collect();
        Ok((200, super::entities::table(&names, rows).body))
    }

    fn known(&self, name: &str) -> Result<&'static EntityType, (i32, String)> {
        schema::find(self.flavour, name).ok_or_else(|| (400, format!("No such entity type '{name}'")))
    }

    fn not_implemented(&self, operation: &str, kind: &EntityType) -> (i32, String) {
        let operations = quoted_list(kind.operations(self.flavour));
        (501, format!("Operation '{operation}' not implemented for '{}' {operations}", kind.full_name(self.flavour)))
    }

    fn unknown_attribute(&self, kind: &EntityType, name: &str) -> String {
        format!("Unknown attribute '{name}' for '{}'", kind.full_name(self.flavour))
    }

    /// Says how a connector fares: `CONNECTING`, `SUCCESS` or `FAILED`, and what is to be said about it.
    pub fn set_connector(&mut self, name: &str, status: &str, message: &str) {
        self.agent.set(name, "connectionStatus", status);
        self.agent.set(name, "connectionMsg", message);
    }

    /// What the connectors shall do, oldest first.
    #[must_use]
    pub fn connectors(&self) -> Vec<Connector> {
        let connectors = self.agent.entities.iter().filter(|entity| entity.kind.name == "connector");
        connectors.map(connector).collect()
    }

    /// What the other side of a connector may do: everything, nothing, or not even be connected to. Without sources and
    /// targets in the policy, that is nothing; finer ones are not needed here.
    #[must_use]
    pub fn leave(&self, connector: &Connector) -> Rights {
        let is_on = |entity: &&Entity| entity.attributes.get("enableVhostPolicy") == Some(&Value::Bool(true));
        if !self.agent.entities.iter().filter(|entity| entity.kind.name == "policy").any(|policy| is_on(&policy)) {
            return Rights::Everything;
        }
        let Some(policy) = connector.policy.as_deref() else { return Rights::Everything };
        let vhost = self
            .agent
            .entities
            .iter()
            .find(|entity| entity.kind.name == "vhost" && entity.text("hostname") == Some(policy));
        let group = match vhost.and_then(|vhost| vhost.attributes.get("groups")) {
            Some(Value::Map(groups)) => groups.contains_key(&Value::from("$connector")),
            _ => false,
        };
        if group { Rights::Nothing } else { Rights::Denied }
    }

    /// Names of the entities of one of the second agent's types (`listener`, `vhost`…), oldest first.
    pub fn names(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.agent
            .entities
            .iter()
            .filter(move |entity| entity.kind.name == kind)
            .filter_map(|entity| entity.text("name"))
    }
}

fn host_port(entity: &Entity) -> String {
    format!("{}:{}", entity.text("host").unwrap_or_default(), entity.text("port").unwrap_or_default())
}

fn connector(entity: &Entity) -> Connector {
    let text = |name: &str| entity.text(name).map(str::to_owned);
    Connector {
        name: text("name").unwrap_or_default(),
        host: text("host").unwrap_or_default(),
        port: text("port").unwrap_or_default(),
        route_container: entity.text("role") == Some("route-container"),
        user: text("saslUsername"),
        password: text("saslPassword"),
        policy: text("policyVhost"),
    }
}

/// Converts values, adds defaults and makes up identity and name.
fn complete(flavour: Flavour, kind: &EntityType, told: Attributes) -> Result<Attributes, String> {
    let long = kind.full_name(flavour);
    let mut all = Attributes::default();
    for (name, value) in told {
        match kind.attribute(flavour, &name) {
            Some(_) if value == Value::Null => {}
            Some(attribute) => {
                let value = convert(attribute.kind, &value).map_err(|words| format!("{long}: {words}"))?;
                all.insert(name, value);
            }
            None => return Err(format!("Unknown attribute '{name}' for '{long}'")),
        }
    }
    all.insert("type".to_owned(), Value::String(long.clone()));
    let identity = {
        let part = |name: &str| all.get(name).map(plain);
        let named = part("name");
        match kind.name {
            "connector" | "listener" => {
                let host = part("host").unwrap_or_else(|| "127.0.0.1".to_owned());
                let port = part("port").unwrap_or_else(|| "amqp".to_owned());
                format!("{}/{host}:{port}{}", kind.name, named.map(|name| format!(":{name}")).unwrap_or_default())
            }
            "vhost" => format!("vhost/{}", part("hostname").unwrap_or_default()),
            other => format!("{other}/{}", named.unwrap_or_default()),
        }
    };
    for attribute in kind.attributes(flavour) {
        if all.contains_key(attribute.name) {
            continue;
        }
        match attribute.default.value() {
            Some(default) => drop(all.insert(attribute.name.to_owned(), default)),
            None if attribute.required => {
                return Err(format!("{long}: Missing required attribute '{}'", attribute.name));
            }
            None => {}
        }
    }
    if !all.contains_key("name") {
        all.insert("name".to_owned(), text(&identity));
    }
    all.insert("identity".to_owned(), Value::String(identity));
    Ok(all)
}

fn convert(kind: Kind, value: &Value) -> Result<Value, String> {
    match kind {
        Kind::Text | Kind::Path => Ok(Value::String(plain(value))),
        Kind::Integer => {
            let parsed = as_integer(value).or_else(|| as_text(value)?.trim().parse().ok());
            let invalid = || format!("invalid literal for int() with base 10: {}", quoted(value));
            parsed.and_then(|number| i32::try_from(number).ok()).map(Value::Int).ok_or_else(invalid)
        }
        Kind::Boolean => match as_text(value).map(str::to_lowercase).as_deref() {
            Some("yes" | "true" | "on") => Ok(Value::Bool(true)),
            Some("no" | "false" | "off") => Ok(Value::Bool(false)),
            Some(other) => Err(format!("Invalid Boolean value '{}'", quote(other))),
            None => Ok(Value::Bool(as_integer(value).map_or(*value == Value::Bool(true), |number| number != 0))),
        },
        Kind::OneOf(words) => match as_text(value) {
            Some(word) if words.contains(&word) => Ok(text(word)),
            _ => Err(format!("Invalid value for enum{}: {}", quoted_list(words), quoted(value))),
        },
        Kind::List | Kind::Map => Ok(value.clone()),
    }
}
