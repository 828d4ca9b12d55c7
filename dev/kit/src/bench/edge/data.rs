//! What is served: the same for every subject and every run.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::pki::{Authority, Leaf};

/// The RouterConfig and its namespace.
pub(super) const CONFIG: (&str, &str) = ("edge", "main");
/// The class of every Ingress.
pub(super) const CLASS: &str = "waystation";
/// The port of every endpoint.
pub(super) const PORT: u16 = 8080;
/// As many addresses lead to this machine, see [`crate::process::enter_own_network`]; a few are left for what changes.
const ADDRESSES: usize = 65_000;
/// The largest size that is served: three addresses for each, and some to replace them. Beyond it the model is alone.
pub(super) const LARGEST: usize = 20_000;

/// One Ingress with a Service and an EndpointSlice of its own, and a Secret where it has TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub namespace: String,
    pub name: String,
    /// One or two. Of each, `/` and `/api` lead to the Service.
    pub hosts: Vec<String>,
    pub tls: bool,
    /// Of its endpoints, in their order.
    pub addresses: Vec<Ipv4Addr>,
}

/// One request that writes.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub method: Method,
    pub path: String,
    pub content: &'static str,
    pub body: Option<Value>,
}

impl Write {
    fn create(path: String, object: Value) -> Self {
        Self { method: Method::POST, path, content: "application/json", body: Some(object) }
    }

    fn delete(path: String) -> Self {
        Self { method: Method::DELETE, path, content: "application/json", body: None }
    }

    fn patch(path: String, operations: Value) -> Self {
        Self { method: Method::PATCH, path, content: "application/json-patch+json", body: Some(operations) }
    }
}

/// All that a run begins with, and addresses for what comes later.
pub(super) struct Data {
    pub sites: Vec<Site>,
    pub namespaces: usize,
    pub authority: Authority,
    planned: usize,
    made: usize,
    next_address: usize,
    first_spare: usize,
}

impl Data {
    /// `size` Ingresses in a third as many namespaces; each second has two hosts, each tenth TLS.
    pub fn plan(size: usize) -> Result<Self> {
        ensure!(size <= LARGEST, "--size {size}: at most {LARGEST}, for want of addresses");
        let namespaces = (size * 10 / 32).max(1);
        let sites = (0..size).map(|number| {
            let name = format!("app-{number:05}");
            let mut hosts = vec![format!("{name}.example")];
            if number % 2 == 0 {
                hosts.push(format!("{name}.second.example"));
            }
            let addresses = (0..3).map(|turn| address(number * 3 + turn)).collect();
            Site { namespace: namespace(number % namespaces), name, hosts, tls: number % 10 == 0, addresses }
        });
        let first_spare = size * 3;
        Ok(Self {
            sites: sites.collect(),
            namespaces,
            authority: Authority::new("bench")?,
            planned: size,
            made: 0,
            next_address: first_spare,
            first_spare,
        })
    }

    /// One that is not there yet, with two hosts.
    pub fn another(&mut self, kind: &str, namespace_of: usize) -> Site {
        self.made += 1;
        let name = format!("{kind}-{:05}", self.made);
        Site {
            namespace: namespace(namespace_of % self.namespaces),
            hosts: vec![format!("{name}.example"), format!("{name}.second.example")],
            name,
            tls: false,
            addresses: (0..3).map(|_| self.fresh_address()).collect(),
        }
    }

    /// An address that nothing has had for long.
    pub fn fresh_address(&mut self) -> Ipv4Addr {
        let number = self.next_address;
        self.next_address = if number + 1 < ADDRESSES { number + 1 } else { self.first_spare };
        address(number)
    }

    /// A new certificate for all hosts of a site.
    pub fn certificate(&self, site: &Site, words: &str) -> Result<Leaf> {
        self.authority.server(words, &site.hosts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Sites that were there from the beginning; they come first.
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// Another of those, of the same namespace; itself where it is alone.
    pub fn neighbour(&self, number: usize) -> usize {
        let next = number + self.namespaces;
        if next < self.planned { next } else { number % self.namespaces }
    }
}

fn namespace(number: usize) -> String {
    format!("tenant-{number:04}")
}

fn address(number: usize) -> Ipv4Addr {
    let number = number + 1;
    // Both fit: there are fewer than 65,536.
    Ipv4Addr::new(10, 77, (number / 256) as u8, (number % 256) as u8)
}

/// What creates the namespaces of all sites.
pub(super) fn namespaces(count: usize) -> Vec<Write> {
    let one = |number| {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(number) } });
        Write::create("/api/v1/namespaces".to_owned(), object)
    };
    (0..count).map(one).collect()
}

impl Site {
    fn service_path(&self) -> String {
        format!("/api/v1/namespaces/{}/services", self.namespace)
    }

    fn secret_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }

    fn slice_path(&self) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.namespace)
    }

    fn ingress_path(&self) -> String {
        format!("/apis/networking.k8s.io/v1/namespaces/{}/ingresses", self.namespace)
    }

    fn slice_name(&self) -> String {
        format!("{}-x", self.name)
    }

    /// Where its endpoints are.
    pub fn slice_of(&self) -> String {
        format!("{}/{}", self.slice_path(), self.slice_name())
    }

    fn endpoints(&self) -> Value {
        self.addresses
            .iter()
            .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
            .collect()
    }

    fn backend(&self) -> Value {
        json!({ "service": { "name": self.name, "port": { "number": 80 } } })
    }

    /// What creates Service and EndpointSlice. A Service without an address of its own: making those up is slow.
    pub fn create_endpoints(&self) -> [Write; 2] {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": self.name },
            "spec": { "clusterIP": "None", "ports": [{ "name": "http", "port": 80, "targetPort": PORT }] },
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": self.slice_name(), "labels": { "kubernetes.io/service-name": self.name } },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": PORT, "protocol": "TCP" }],
            "endpoints": self.endpoints(),
        });
        [Write::create(self.service_path(), service), Write::create(self.slice_path(), slice)]
    }

    /// What creates its Ingress.
    pub fn create_ingress(&self) -> Write {
        let path = |path: &str| json!({ "path": path, "pathType": "Prefix", "backend": self.backend() });
        let rule = |host: &String| json!({ "host": host, "http": { "paths": [path("/"), path("/api")] } });
        let mut object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": self.name },
            "spec": { "ingressClassName": CLASS, "rules": self.hosts.iter().map(rule).collect::<Vec<_>>() },
        });
        if self.tls {
            object["spec"]["tls"] = json!([{ "hosts": self.hosts, "secretName": self.name }]);
        }
        Write::create(self.ingress_path(), object)
    }

    /// What creates its Secret.
    pub fn create_secret(&self, leaf: &Leaf) -> Write {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": { "name": self.name },
            "stringData": { "tls.crt": leaf.certificate, "tls.key": leaf.key },
        });
        Write::create(self.secret_path(), object)
    }

    /// What gives it another certificate.
    pub fn rotate(&self, leaf: &Leaf) -> Write {
        let body = json!({ "stringData": { "tls.crt": leaf.certificate, "tls.key": leaf.key } });
        Write {
            method: Method::PATCH,
            path: format!("{}/{}", self.secret_path(), self.name),
            content: "application/merge-patch+json",
            body: Some(body),
        }
    }

    /// What gives one of its endpoints another address.
    pub fn replace_endpoint(&mut self, turn: usize, address: Ipv4Addr) -> Write {
        self.addresses[turn] = address;
        let path = format!("/endpoints/{turn}/addresses/0");
        Write::patch(self.slice_of(), json!([{ "op": "replace", "path": path, "value": address }]))
    }

    /// What gives it these endpoints and no others.
    pub fn scale(&mut self, addresses: Vec<Ipv4Addr>) -> Write {
        self.addresses = addresses;
        Write::patch(self.slice_of(), json!([{ "op": "replace", "path": "/endpoints", "value": self.endpoints() }]))
    }

    /// What leads one more path of its first host to another site's Service.
    pub fn add_path(&self, path: &str, to: &Site) -> Write {
        let value = json!({ "path": path, "pathType": "Exact", "backend": to.backend() });
        let operation = json!({ "op": "add", "path": "/spec/rules/0/http/paths/0", "value": value });
        Write::patch(format!("{}/{}", self.ingress_path(), self.name), json!([operation]))
    }

    /// What takes the first path of its first host away again.
    pub fn remove_path(&self) -> Write {
        let operation = json!({ "op": "remove", "path": "/spec/rules/0/http/paths/0" });
        Write::patch(format!("{}/{}", self.ingress_path(), self.name), json!([operation]))
    }

    /// What takes its second host away.
    pub fn remove_host(&mut self) -> Write {
        self.hosts.truncate(1);
        let operation = json!({ "op": "remove", "path": "/spec/rules/1" });
        Write::patch(format!("{}/{}", self.ingress_path(), self.name), json!([operation]))
    }

    /// What deletes its Ingress.
    pub fn delete_ingress(&self) -> Write {
        Write::delete(format!("{}/{}", self.ingress_path(), self.name))
    }

    /// What deletes its Service and its EndpointSlice.
    pub fn delete_endpoints(&self) -> [Write; 2] {
        [Write::delete(format!("{}/{}", self.service_path(), self.name)), Write::delete(self.slice_of())]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_sites_share_a_host_or_an_address() {
        let mut data = Data::plan(1_000).unwrap();
        let new = data.another("new", 7);
        data.sites.push(new);
        let count: usize = data.sites.iter().map(|site| site.addresses.len()).sum();
        let addresses: BTreeSet<_> = data.sites.iter().flat_map(|site| &site.addresses).collect();
        assert_eq!((addresses.len(), count), (3_003, 3_003));
        let count: usize = data.sites.iter().map(|site| site.hosts.len()).sum();
        let hosts: BTreeSet<_> = data.sites.iter().flat_map(|site| &site.hosts).collect();
        assert_eq!((hosts.len(), count), (1_502, 1_502));
    }

    #[test]
    fn a_neighbour_is_in_the_same_namespace() {
        let data = Data::plan(100).unwrap();
        for number in 0..100 {
            let neighbour = data.neighbour(number);
            assert!(neighbour != number);
            assert_eq!(data.sites[neighbour].namespace, data.sites[number].namespace);
        }
    }

    #[test]
    fn addresses_come_around_and_never_to_those_of_the_beginning() {
        let mut data = Data::plan(LARGEST).unwrap();
        let first: BTreeSet<_> = data.sites.iter().flat_map(|site| site.addresses.clone()).collect();
        assert!((0..20_000).all(|_| !first.contains(&data.fresh_address())));
        assert!(Data::plan(LARGEST + 1).is_err());
    }
}
