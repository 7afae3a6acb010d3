//! The feature `planted` plants the bugs that the harnesses must find, `shuttle` has locks that work under its
//! scheduler only, and `knife` lets a daemon's power be cut. Each is switched on by name, in a build of its own, and by
//! nothing else: not by default and not by a dependency.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Finding, Looked, Repository};

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    for package in repository.packages() {
        let name = package["name"].as_str().unwrap_or_default();
        let by_default = by_default(&package["features"]).into_iter().map(|f| (f, "its default features"));
        let by_dependency = by_dependency(package).into_iter().map(|f| (f, "a dependency's features"));
        findings.extend(by_default.chain(by_dependency).filter(|(feature, _)| is_for_tests(feature)).map(
            |(feature, switched_on_by)| Finding {
                path: format!("package {name}"),
                line: 0,
                message: format!("{switched_on_by} switch on `{feature}`: leave it to `--features`"),
            },
        ));
    }
    Looked::At(repository.packages().len(), "packages")
}

/// What nothing that ships may have.
const FOR_TESTS: [&str; 3] = ["planted", "shuttle", "knife"];

/// Whether it is one of these, `crate/` or `crate?/` and one of these, or the crate of that name.
fn is_for_tests(feature: &str) -> bool {
    feature.rsplit(['/', ':']).next().is_some_and(|name| FOR_TESTS.contains(&name))
}

/// Everything that `default` leads to.
fn by_default(features: &Value) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec!["default".to_owned()];
    while let Some(feature) = waiting.pop() {
        let leads_to = features[&feature].as_array().map_or(&[][..], Vec::as_slice);
        waiting.extend(
            leads_to.iter().filter_map(Value::as_str).map(str::to_owned).filter(|f| !reached.contains(f)),
        );
        reached.insert(feature);
    }
    reached
}

/// What the manifest switches on in what the package depends on.
fn by_dependency(package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    let features = all.iter().filter_map(|dependency| dependency["features"].as_array()).flatten();
    features.filter_map(Value::as_str).map(str::to_owned).collect()
}
