//! Every path that a source file refers to, resolved as far as its text tells: imports, paths in code, in attributes
//! and in the arguments of macros.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The library crate's name, by which its own binary knows it.
const SELF: &str = "waystation";

/// Something that a file refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A path from the root of this crate; empty for the root itself.
    Internal(Vec<String>),
    /// A path that starts with the name of another crate.
    External(Vec<String>),
}

impl Reference {
    /// Whether `path` (`a::b`) stands somewhere in this one.
    pub fn contains(&self, path: &str) -> bool {
        let (Self::Internal(own) | Self::External(own)) = self;
        let wanted: Vec<&str> = path.split("::").collect();
        own.windows(wanted.len()).any(|window| window == wanted)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(path) if path.is_empty() => f.write_str("crate"),
            Self::Internal(path) => write!(f, "crate::{}", path.join("::")),
            Self::External(path) => f.write_str(&path.join("::")),
        }
    }
}

/// The crates whose names may begin a path.
pub struct Crates(BTreeSet<String>);

impl Crates {
    /// Those of `[dependencies]` and `[dev-dependencies]`, and the standard ones.
    pub fn from_manifest(manifest: &str) -> Self {
        let mut names: BTreeSet<String> = ["std", "core", "alloc"].map(str::to_owned).into();
        let mut listed = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                listed = matches!(line.trim(), "[dependencies]" | "[dev-dependencies]");
            } else if listed && let Some((name, _)) = line.split_once(['=', '.']) {
                names.insert(name.trim().replace('-', "_"));
            }
        }
        Self(names)
    }
}

/// All references of a file that stands for the module, outside of test code.
pub fn references(source: &str, module: &[String], crates: &Crates) -> Result<BTreeSet<Reference>, String> {
    let tokens: TokenStream = source.parse().map_err(|error| format!("not Rust: {error}"))?;
    let tokens: Vec<TokenTree> = without_test_code(tokens);
    let mut found = Found { imports: Vec::new(), paths: Vec::new() };
    found.walk(&tokens, module);

    let mut file = File { crates, names: BTreeMap::new() };
    // An import may use the name that another one gives, in any order.
    for _ in 0..found.imports.len().min(8) {
        for import in &found.imports {
            if let (Some(name), Some(reference)) = (&import.name, file.resolve(&import.path)) {
                file.names.insert((import.path.module.clone(), name.clone()), reference);
            }
        }
    }
    let imports = found.imports.iter().map(|import| &import.path);
    Ok(imports.chain(&found.paths).filter_map(|path| file.resolve(path)).collect())
}

/// A path as it is written, and the module that it is written in.
#[derive(Debug)]
struct Written {
    module: Vec<String>,
    /// Whether it starts with `::`.
    absolute: bool,
    parts: Vec<String>,
}

struct Import {
    /// The name that the file knows it by; none for `*`.
    name: Option<String>,
    path: Written,
}

struct Found {
    imports: Vec<Import>,
    paths: Vec<Written>,
}

struct File<'a> {
    crates: &'a Crates,
    /// What imported names stand for, by the module that imports them.
    names: BTreeMap<(Vec<String>, String), Reference>,
}

impl File<'_> {
    fn resolve(&self, path: &Written) -> Option<Reference> {
        let mut base = path.module.clone();
        let mut rest = path.parts.as_slice();
        let mut relative = false;
        while let [first, tail @ ..] = rest {
            match first.as_str() {
                "crate" if !relative => base.clear(),
                "super" => drop(base.pop()),
                "self" => {}
                _ => break,
            }
            relative = true;
            rest = tail;
        }
        if relative && !path.absolute {
            // `self::name` may be an imported name, too.
            if let [name, tail @ ..] = rest
                && let Some(reference) = self.names.get(&(base.clone(), name.clone()))
            {
                return Some(extended(reference, tail));
            }
            return Some(Reference::Internal([base.as_slice(), rest].concat()));
        }
        let [first, tail @ ..] = rest else { return None };
        if !path.absolute
            && let Some(reference) = self.names.get(&(path.module.clone(), first.clone()))
        {
            return Some(extended(reference, tail));
        }
        if first == SELF {
            return Some(Reference::Internal(tail.to_vec()));
        }
        // Anything else is a name of the module itself, or of the language.
        self.crates.0.contains(first).then(|| Reference::External(rest.to_vec()))
    }
}

fn extended(reference: &Reference, tail: &[String]) -> Reference {
    match reference {
        Reference::Internal(path) => Reference::Internal([path.as_slice(), tail].concat()),
        Reference::External(path) => Reference::External([path.as_slice(), tail].concat()),
    }
}

impl Found {
    fn walk(&mut self, tokens: &[TokenTree], module: &[String]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(word) if word == "use" => {
                    let end = statement_end(tokens, at);
                    self.import(&tokens[at + 1..end], module, false, &[]);
                    at = end;
                }
                TokenTree::Ident(word) if word == "extern" && is_ident(tokens.get(at + 1), "crate") => {
                    let parts = tokens.get(at + 2).map(ToString::to_string).into_iter().collect();
                    self.paths.push(Written { module: module.to_vec(), absolute: true, parts });
                    at += 3;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                        (tokens.get(at + 1), tokens.get(at + 2))
                    {
                        let inner = [module, &[name.to_string()]].concat();
                        self.walk(&without_test_code(body.stream()), &inner);
                        at += 3;
                    } else {
                        at += 1;
                    }
                }
                TokenTree::Ident(_) => {
                    let absolute = is_separator(tokens, at.wrapping_sub(2));
                    let (parts, end) = path_from(tokens, at);
                    // A name alone counts where it may be a crate or a module: as a macro or after `::`.
                    if parts.len() > 1 || absolute {
                        self.paths.push(Written { module: module.to_vec(), absolute, parts });
                    }
                    at = end;
                }
                TokenTree::Group(group) => {
                    self.walk(&without_test_code(group.stream()), module);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// One import tree, without the `;`.
    fn import(&mut self, tree: &[TokenTree], module: &[String], absolute: bool, prefix: &[String]) {
        let mut parts = prefix.to_vec();
        let mut at = 0;
        let mut absolute = absolute;
        if prefix.is_empty() && is_separator(tree, 0) {
            absolute = true;
            at = 2;
        }
        let written = |parts: Vec<String>| Written { module: module.to_vec(), absolute, parts };
        while let Some(token) = tree.get(at) {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    let name = tree.get(at + 1).map(ToString::to_string);
                    self.imports.push(Import { name, path: written(parts) });
                    return;
                }
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    // `{self}` is the prefix.
                    if word != "self" || parts.is_empty() {
                        parts.push(word.trim_start_matches("r#").to_owned());
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    self.imports.push(Import { name: None, path: written(parts) });
                    return;
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for tree in inner.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ',')) {
                        if !tree.is_empty() {
                            self.import(tree, module, absolute, &parts);
                        }
                    }
                    return;
                }
                _ => {}
            }
            at += 1;
        }
        if !parts.is_empty() {
            self.imports.push(Import { name: parts.last().cloned(), path: written(parts) });
        }
    }
}

/// `a::b::c` from a name on, and where it ends.
fn path_from(tokens: &[TokenTree], start: usize) -> (Vec<String>, usize) {
    let mut parts = Vec::new();
    let mut at = start;
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        parts.push(word.to_string().trim_start_matches("r#").to_owned());
        at += 1;
        if !is_separator(tokens, at) || !matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
            break;
        }
        at += 2;
    }
    (parts, at)
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(at) && colon(at.wrapping_add(1))
}

fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(word)) if word == name)
}

fn statement_end(tokens: &[TokenTree], from: usize) -> usize {
    let end = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ';');
    tokens[from..].iter().position(end).map_or(tokens.len(), |offset| from + offset)
}

/// Leaves out every item that `#[cfg(test)]` stands before, and the texts of documentation.
fn without_test_code(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let (TokenTree::Punct(hash), Some(TokenTree::Group(attribute))) = (&tokens[at], tokens.get(at + 1))
            && hash.as_char() == '#'
            && attribute.delimiter() == Delimiter::Bracket
            && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
        {
            at = item_end(&tokens, at + 2);
            continue;
        }
        kept.push(tokens[at].clone());
        at += 1;
    }
    kept
}

/// After the item: behind its `;` or its body, whichever comes first.
fn item_end(tokens: &[TokenTree], from: usize) -> usize {
    let visibility = |t: &&TokenTree| is_ident(Some(t), "pub") || matches!(t, TokenTree::Group(_));
    let is_use = is_ident(tokens[from..].iter().find(|t| !visibility(t)), "use");
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return at + 1,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
