//! What the documents say of the tests is so.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_test_that_the_table_of_promises_names_exists() {
    let design = read("DESIGN.md");
    let table = design.split_once("## Promises").expect("the section").1;
    let table = table.split_once("\n## ").expect("its end").0;
    let code = table.split('`').skip(1).step_by(2);
    let is_module = |name: &str| name.chars().all(|c| c.is_lowercase() || c == '_');
    let named: Vec<_> = code
        .filter_map(|name| name.split_once("::"))
        .filter(|(module, _)| is_module(module) && *module != "file")
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for (module, test) in named {
        let source = read(&format!("tests/it/{module}.rs"));
        let tests = source.split("#[test]").skip(1);
        let is_it = |after: &str| {
            let name = after.split_once("fn ").map(|(_, name)| name);
            name.is_some_and(|name| test == "*" || name.starts_with(&format!("{test}(")))
        };
        assert!(tests.into_iter().any(is_it), "{module}::{test}");
    }
}
