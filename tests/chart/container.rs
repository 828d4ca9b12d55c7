//! The Containerfile, as far as it can be looked at without an engine.

use std::path::Path;

use serde_json::Value;
use waystation_kit::tools::repository;

use super::helm::{Helm, chart, object};

/// Instructions with their arguments, continued lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository().join("Containerfile")).unwrap().replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parted = lines.map(|line| line.split_once(char::is_whitespace).unwrap());
    parted.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect()
}

#[tokio::test]
async fn the_image_is_small_and_nobodys_root() {
    let all = instructions();
    let last = all.iter().rposition(|(name, _)| name == "FROM").unwrap();
    for (_, base) in all.iter().filter(|(name, _)| name == "FROM") {
        let image = base.split_whitespace().next().unwrap();
        assert!(image.matches(':').count() == 1 && !image.ends_with(":latest"), "{image} is no certain version");
    }
    let names = all[last..].iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    // Nothing is run or fetched in the last stage: no compiler and no package lists are in it.
    assert_eq!(names, ["FROM", "COPY", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD"]);
    let told = |wanted: &str| all[last..].iter().find(|(name, _)| name == wanted).unwrap().1.as_str();
    assert_eq!(told("ENTRYPOINT"), r#"["/usr/local/bin/waystation"]"#);

    let objects = Helm::offline().unwrap().template("w", &chart(), "w", &["--set=edge.enabled=true"]).await.unwrap();
    let deployment = object(&objects, "Deployment", "w-waystation");
    let security = &deployment["spec"]["template"]["spec"]["securityContext"];
    let user = |field: &str| security[field].as_u64().unwrap();
    assert_eq!(told("USER"), format!("{}:{}", user("runAsUser"), user("runAsGroup")));
}

/// What is copied exists and is let through by the ignore file; without all workspace members cargo builds nothing.
#[test]
fn what_is_copied_is_there() {
    let ignored = std::fs::read_to_string(repository().join(".containerignore")).unwrap();
    let copied = instructions().into_iter().filter(|(name, rest)| name == "COPY" && !rest.starts_with("--from"));
    let mut sources = Vec::new();
    for (_, rest) in copied {
        let words = rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        sources.extend_from_slice(&words[..words.len() - 1]);
    }
    for source in &sources {
        assert!(repository().join(source).exists(), "{source}");
        assert!(ignored.lines().any(|line| line == format!("!{source}")), "{source} is not let through");
    }
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let members: Value = serde_json::from_str(members).unwrap();
    for member in members.as_array().unwrap().iter().filter_map(Value::as_str).filter(|member| *member != ".") {
        assert!(sources.iter().any(|source| Path::new(source) == Path::new(member)), "{member} is not copied");
    }
}
