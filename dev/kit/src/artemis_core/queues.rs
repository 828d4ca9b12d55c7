//! Queues and addresses.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Address, Core, Queue, Removal, Routing, address_info, no_address};

impl Core {
    pub(super) fn create_queue(&mut self, text: &str, ignore_if_exists: bool) -> Result<Value, String> {
        let wanted = parse_object(text)?;
        let name = string(&wanted, "name").ok_or("name can't be null or empty!")?;
        self.check_refused(&name)?;
        let address = string(&wanted, "address").unwrap_or_else(|| name.clone());
        let routing = Routing::parse(&string(&wanted, "routing-type").unwrap_or_else(|| "MULTICAST".to_owned()))?;
        if let Some(queue) = self.queues.get(&name) {
            return match ignore_if_exists {
                true => Ok(Value::String(echo_of_request(&wanted))),
                false => Err(format!("AMQ229019: Queue {name} already exists on address {}", queue.address)),
            };
        }
        let automatic = || self.settings.flag(&address, "autoCreateAddresses");
        let make_address = wanted.get("auto-create-address").and_then(Value::as_bool).unwrap_or_else(automatic);
        match self.addresses.get(&address) {
            None if !make_address => return Err(no_address(&address)),
            Some(found) if !found.routing.contains(&routing) && !make_address => {
                return Err(format!(
                    "AMQ229207: Can not create queue with routing type: {}, Supported routing types for address: \
                     {address} are {}",
                    routing.as_str(),
                    types_in_brackets(found)
                ));
            }
            _ => {}
        }
        let durable = wanted.get("durable").and_then(Value::as_bool).unwrap_or(true);
        let max_consumers = number(&wanted, "max-consumers").unwrap_or(-1);
        let user = string(&wanted, "user").unwrap_or_default();
        self.bind(&name, &address, routing, (durable, max_consumers, user));
        self.changes += 1;
        Ok(Value::String(self.echo(&name)))
    }

    pub(super) fn update_queue(&mut self, text: &str) -> Result<Value, String> {
        let wanted = parse_object(text)?;
        let name = string(&wanted, "name").ok_or("name can't be null or empty!")?;
        self.check_refused(&name)?;
        let queue = self.queues.get_mut(&name).ok_or_else(|| no_queue(&name))?;
        if let Some(max_consumers) = number(&wanted, "max-consumers") {
            queue.max_consumers = max_consumers;
        }
        if let Some(user) = string(&wanted, "user") {
            queue.user = user;
        }
        if let Some(routing) = string(&wanted, "routing-type") {
            queue.routing = Routing::parse(&routing)?;
        }
        self.changes += 1;
        Ok(Value::String(self.echo(&name)))
    }

    pub(super) fn destroy_queue(
        &mut self,
        name: &str,
        remove_consumers: bool,
        delete_address: bool,
    ) -> Result<Value, String> {
        self.check_refused(name)?;
        let queue = self.queues.get(name).ok_or_else(|| no_queue(name))?;
        if queue.consumers > 0 && !remove_consumers {
            return Err(format!(
                "AMQ229025: Cannot delete queue {name} on binding {name} - it has consumers = \
                 org.apache.activemq.artemis.core.postoffice.impl.LocalQueueBinding"
            ));
        }
        let address = queue.address.clone();
        self.unbind(name);
        if delete_address && self.addresses.get(&address).is_some_and(|address| address.queues.is_empty()) {
            self.addresses.remove(&address);
        }
        self.changes += 1;
        Ok(Value::Null)
    }

    pub(super) fn create_address(&mut self, name: &str, types: &str) -> Result<Value, String> {
        let types = parse_types(types)?;
        self.check_refused(name)?;
        if self.addresses.contains_key(name) {
            return Err(format!("AMQ229204: Address already exists: {name}"));
        }
        for routing in types {
            self.address_with(name, routing);
        }
        self.changes += 1;
        self.info(name)
    }

    pub(super) fn update_address(&mut self, name: &str, types: &str) -> Result<Value, String> {
        let types = parse_types(types)?;
        self.check_refused(name)?;
        let address = self.addresses.get_mut(name).ok_or_else(|| no_address(name))?;
        address.routing = types;
        self.changes += 1;
        self.info(name)
    }

    pub(super) fn delete_address(&mut self, name: &str, with_queues: bool) -> Result<Value, String> {
        self.check_refused(name)?;
        let address = self.addresses.get(name).ok_or_else(|| no_address(name))?;
        if !address.queues.is_empty() && !with_queues {
            return Err(format!("AMQ229205: Address {name} has bindings"));
        }
        for queue in address.queues.clone() {
            self.unbind(&queue);
        }
        self.addresses.remove(name);
        self.changes += 1;
        Ok(Value::Null)
    }

    fn info(&self, name: &str) -> Result<Value, String> {
        let address = self.addresses.get(name).ok_or_else(|| no_address(name))?;
        Ok(Value::String(address_info(name, address)))
    }

    pub(super) fn list_queues(&self, params: &[Value]) -> Result<Value, String> {
        let filter = Filter::parse(params.first())?;
        let rows = self.queues.iter().filter(|(name, queue)| {
            filter.takes(|field| match field {
                "name" => Some(name.as_str()),
                "address" => Some(&queue.address),
                "user" => Some(&queue.user),
                _ => None,
            })
        });
        Ok(page(rows, params, |(name, queue)| row(name, queue)))
    }

    pub(super) fn list_addresses(&self, params: &[Value]) -> Result<Value, String> {
        let filter = Filter::parse(params.first())?;
        let rows =
            self.addresses.iter().filter(|(name, _)| filter.takes(|field| (field == "name").then_some(name.as_str())));
        Ok(page(rows, params, |(name, address)| {
            json!({
                "id": address.id.to_string(), "name": name, "internal": "false",
                "routingTypes": types_in_brackets(address), "queueCount": address.queues.len().to_string(),
            })
        }))
    }

    /// Makes an address, or gives it one more routing type.
    pub(super) fn address_with(&mut self, name: &str, routing: Routing) {
        let id = self.id();
        let address = self.addresses.entry(name.to_owned()).or_insert_with(|| Address {
            id,
            routing: BTreeSet::new(),
            queues: BTreeSet::new(),
            auto_created: false,
        });
        address.routing.insert(routing);
    }

    pub(super) fn bind(&mut self, name: &str, address: &str, routing: Routing, rest: (bool, i32, String)) {
        let made = !self.addresses.contains_key(address);
        self.address_with(address, routing);
        if let Some(address) = self.addresses.get_mut(address) {
            address.auto_created |= made;
            address.queues.insert(name.to_owned());
        }
        let (durable, max_consumers, user) = rest;
        let address = address.to_owned();
        let id = self.id();
        let queue = Queue {
            address,
            routing,
            durable,
            max_consumers,
            user,
            messages: 0,
            consumers: 0,
            auto_created: false,
            id,
        };
        self.queues.insert(name.to_owned(), queue);
    }

    /// Takes a queue away and tells of it.
    pub(super) fn unbind(&mut self, name: &str) {
        let Some(queue) = self.queues.remove(name) else { return };
        if let Some(address) = self.addresses.get_mut(&queue.address) {
            address.queues.remove(name);
        }
        self.removals.push_back(Removal { queue: name.to_owned(), address: queue.address });
    }

    fn echo(&self, name: &str) -> String {
        let Some(queue) = self.queues.get(name) else { return String::new() };
        let mut echo = json!({
            "id": queue.id, "name": name, "address": queue.address, "routing-type": queue.routing.as_str(),
            "durable": queue.durable, "max-consumers": queue.max_consumers, "exclusive": false,
            "group-rebalance": false, "group-rebalance-pause-dispatch": false, "group-buckets": -1,
            "last-value": false, "non-destructive": false, "purge-on-no-consumers": false,
            "consumers-before-dispatch": 0, "delay-before-dispatch": -1, "auto-delete": false,
            "auto-delete-delay": 0, "auto-delete-message-count": 0, "ring-size": -1,
            "configuration-managed": false, "temporary": false, "auto-create-address": true, "internal": false,
            "transient": false, "auto-created": false, "fqqn": false,
        });
        if !queue.user.is_empty() {
            echo["user"] = Value::from(queue.user.as_str());
        }
        echo.to_string()
    }
}

/// What the broker answers to a request that it ignores, since something of that name exists: the request.
fn echo_of_request(wanted: &Map<String, Value>) -> String {
    let mut echo = wanted.clone();
    echo.remove("auto-create-address");
    echo.entry("durable").or_insert(Value::Bool(true));
    for key in ["configuration-managed", "temporary", "internal", "transient", "auto-created", "fqqn"] {
        echo.entry(key).or_insert(Value::Bool(false));
    }
    Value::Object(echo).to_string()
}

fn row(name: &str, queue: &Queue) -> Value {
    json!({
        "id": queue.id.to_string(), "name": name, "address": queue.address, "filter": "",
        "durable": queue.durable.to_string(), "paused": "false", "temporary": "false", "purgeOnNoConsumers": "false",
        "consumerCount": queue.consumers.to_string(), "maxConsumers": queue.max_consumers.to_string(),
        "autoCreated": queue.auto_created.to_string(), "user": queue.user, "routingType": queue.routing.as_str(), "messagesAdded": "0",
        "messageCount": queue.messages.to_string(), "messagesAcked": "0", "messagesExpired": "0",
        "deliveringCount": "0", "messagesKilled": "0", "directDeliver": "false", "exclusive": "false",
        "lastValue": "false", "lastValueKey": "", "scheduledCount": "0", "groupRebalance": "false",
        "groupRebalancePauseDispatch": "false", "groupBuckets": "-1", "groupFirstKey": "", "enabled": "true",
        "ringSize": "-1", "consumersBeforeDispatch": "0", "delayBeforeDispatch": "-1", "autoDelete": "false",
        "internalQueue": "false",
    })
}

fn page<T>(rows: impl Iterator<Item = T>, params: &[Value], row: impl Fn(T) -> Value) -> Value {
    let number = |index: usize| params.get(index).and_then(Value::as_u64).unwrap_or(1).max(1) as usize;
    let (page, size) = (number(1), number(2));
    let (mut data, mut count) = (Vec::new(), 0);
    for item in rows {
        if count / size == page - 1 {
            data.push(row(item));
        }
        count += 1;
    }
    Value::String(json!({ "data": data, "count": count }).to_string())
}

/// `{"field":…,"operation":…,"value":…}`, or an empty string for everything.
struct Filter {
    field: String,
    contains: bool,
    value: String,
}

impl Filter {
    fn parse(param: Option<&Value>) -> Result<Self, String> {
        let text = param.and_then(Value::as_str).unwrap_or_default();
        let all = Self { field: String::new(), contains: true, value: String::new() };
        if text.is_empty() {
            return Ok(all);
        }
        let filter = parse_object(text)?;
        let field = string(&filter, "field").unwrap_or_default();
        if field.is_empty() {
            return Ok(all);
        }
        let contains = match string(&filter, "operation").unwrap_or_default().as_str() {
            "EQUALS" => false,
            "CONTAINS" => true,
            other => return Err(format!("filter operation {other}: not in this model of the broker")),
        };
        Ok(Self { field, contains, value: string(&filter, "value").unwrap_or_default() })
    }

    fn takes<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        if self.field.is_empty() {
            return true;
        }
        match value_of(&self.field) {
            Some(value) if self.contains => value.contains(&self.value),
            Some(value) => value == self.value,
            None => false,
        }
    }
}

fn no_queue(name: &str) -> String {
    format!("AMQ229017: Queue {name} does not exist")
}

fn types_in_brackets(address: &Address) -> String {
    let types: Vec<&str> = address.routing.iter().rev().map(|routing| routing.as_str()).collect();
    format!("[{}]", types.join(", "))
}

fn parse_types(types: &str) -> Result<BTreeSet<Routing>, String> {
    types.split(',').map(|word| Routing::parse(word.trim())).collect()
}

pub(super) fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(format!("Unexpected character in {text}")),
    }
}

fn string(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn number(object: &Map<String, Value>, key: &str) -> Option<i32> {
    object.get(key).and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok())
}
