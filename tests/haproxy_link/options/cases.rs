//! The form of a case.

use waystation::edge::input::PathType;

use crate::asking::{Ask, get};

/// What is asked where the paths of an Ingress begin with this.
pub type Asks = Box<dyn Fn(&str) -> Vec<Ask>>;

/// A value and what follows from it.
pub struct Said {
    pub value: &'static str,
    pub asks: Asks,
}

/// One option.
pub struct Case {
    /// Unique: the label of its host, and what its objects are called.
    pub name: String,
    pub option: &'static str,
    /// What else is said, at every step.
    pub also: Vec<(&'static str, &'static str)>,
    /// Whether the host has TLS.
    pub tls: bool,
    pub kind: PathType,
    /// The path of its rule.
    pub root: String,
    pub endpoints: usize,
    pub port: u16,
    /// Without the option.
    pub plain: Said,
    pub set: Said,
    /// Also what a younger Ingress says.
    pub changed: Said,
    /// Values that mean nothing: as without the option, or denied where it protects.
    pub bad: Vec<&'static str>,
    pub denied: Said,
    /// A younger Ingress would say nothing new.
    pub alone: bool,
}

fn said(value: &'static str, asks: impl Fn(&str) -> Vec<Ask> + 'static) -> Said {
    Said { value, asks: Box::new(asks) }
}

pub fn case(option: &'static str) -> Case {
    let nothing = || said("", |_| Vec::new());
    Case {
        name: option.to_owned(),
        option,
        also: Vec::new(),
        tls: false,
        kind: PathType::Prefix,
        root: "/".to_owned(),
        endpoints: 1,
        port: 8080,
        plain: nothing(),
        set: nothing(),
        changed: nothing(),
        bad: Vec::new(),
        denied: said("", status(503)),
        alone: false,
    }
}

/// The root of an Ingress whose paths begin with this.
pub fn path_or_root(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

/// It is answered with that.
pub fn status(status: u16) -> impl Fn(&str) -> Vec<Ask> + Clone {
    move |path: &str| vec![get(path_or_root(path)).status(status)]
}

/// The endpoint sees that line.
pub fn seen(line: &'static str) -> impl Fn(&str) -> Vec<Ask> + Clone {
    move |path: &str| vec![get(path_or_root(path)).status(200).seen(line)]
}

impl Case {
    pub fn host(&self) -> String {
        format!("{}.opt.test", self.name)
    }

    /// A second case of an option.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    pub fn also(mut self, name: &'static str, value: &'static str) -> Self {
        self.also.push((name, value));
        self
    }

    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub fn at(mut self, root: &str, kind: PathType) -> Self {
        (self.root, self.kind, self.alone) = (root.to_owned(), kind, true);
        self
    }

    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    pub fn endpoints(mut self, endpoints: usize) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Of the endpoints.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    pub fn plain(mut self, asks: impl Fn(&str) -> Vec<Ask> + 'static) -> Self {
        self.plain = said("", asks);
        self
    }

    pub fn set(mut self, value: &'static str, asks: impl Fn(&str) -> Vec<Ask> + 'static) -> Self {
        self.set = said(value, asks);
        self
    }

    pub fn changed(mut self, value: &'static str, asks: impl Fn(&str) -> Vec<Ask> + 'static) -> Self {
        self.changed = said(value, asks);
        self
    }

    pub fn bad(mut self, values: &[&'static str]) -> Self {
        self.bad = values.to_vec();
        self
    }

    pub fn denied(mut self, asks: impl Fn(&str) -> Vec<Ask> + 'static) -> Self {
        self.denied = said("", asks);
        self
    }
}
