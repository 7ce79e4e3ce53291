//! The source keeps to its layers: each file imports from layers below its own, and no others.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom. `error` is one type for the whole crate and wraps `driver`'s own, so it stands
/// above `driver`, which does not know it. There are no exceptions.
const LAYERS: [&[&str]; 8] = [
    &["sync", "foreign", "random"],
    &["driver"],
    &["error"],
    &["reactor"],
    &["device"],
    &["buffer"],
    &["op"],
    &["task"],
];
/// Above all: the files that put a device together.
const TOP: [&str; 5] = ["builder", "guide", "lib", "sim", "testing"];

/// Files that may contain `unsafe`, each for a reason of its own.
const UNSAFE: [&str; 39] = [
    "buffer/cast.rs",
    "buffer/host_access.rs",
    "buffer/host_copy.rs",
    "buffer/pieces.rs",
    "buffer/rows.rs",
    "buffer/tile.rs",
    "buffer/view.rs",
    "buffer/volume.rs",
    "device/memory/release.rs",
    "device/pinned/block.rs",
    "driver/conformance/calls.rs",
    "driver/conformance/gate.rs",
    "driver/conformance/kernels.rs",
    "driver/conformance/programs.rs",
    "driver/conformance/sticky.rs",
    "driver/cuda/api.rs",
    "driver/cuda/calls.rs",
    "driver/cuda/context.rs",
    "driver/cuda/info.rs",
    "driver/cuda/module.rs",
    "driver/cuda/pool.rs",
    "driver/cuda/tests.rs",
    "driver/exit.rs",
    "driver/mod.rs",
    "driver/model.rs",
    "driver/sim/bytes.rs",
    "driver/sim/device.rs",
    "driver/sim/executor.rs",
    "driver/sim/tests/mod.rs",
    "driver/watched.rs",
    "op/copy.rs",
    "op/fill.rs",
    "op/gate.rs",
    "op/launch.rs",
    "op/staging/bytes.rs",
    "op/staging/submit.rs",
    "op/twin.rs",
    "reactor/in_flight.rs",
    "reactor/timer_slack.rs",
];

struct Source {
    /// Below `src`, with `/` between.
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a folder of the crate").flatten() {
            match entry.path() {
                path if path.is_dir() => walk(&path, into),
                path if path.extension().is_some_and(|ext| ext == "rs") => into.push(path),
                _ => {}
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    paths.sort();
    assert!(paths.len() > 30, "the sources were not found");
    let source = |path: PathBuf| Source {
        text: fs::read_to_string(&path).expect("a source file"),
        path: path.strip_prefix(&root).expect("below src").to_string_lossy().replace('\\', "/"),
    };
    paths.into_iter().map(source).collect()
}

impl Source {
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Modules between the crate's root and this file: `super` as often leads to the root.
    fn depth(&self) -> usize {
        let parts = self.path.split('/').count();
        let is_root_of_folder = self.path.ends_with("/mod.rs") || self.path == "lib.rs";
        if is_root_of_folder { parts - 1 } else { parts }
    }

    /// Lines of code with their numbers; comments cut off.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines.map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()))
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[test]
fn no_file_imports_from_its_own_level_or_above() {
    let mut wrong = Vec::new();
    for source in sources() {
        let module = source.module();
        if TOP.contains(&module) {
            continue;
        }
        let Some(own) = layer_of(module) else {
            wrong.push(format!("{}: `{module}` is in no layer", source.path));
            continue;
        };
        for (number, line) in source.code() {
            for (at, _) in line.match_indices("crate::") {
                if line[..at].ends_with('$') || line[..at].ends_with('_') {
                    continue;
                }
                // `crate::{…}` and names of the crate's root have no layer either.
                let used = identifier(&line[at + "crate::".len()..]);
                let allowed = used == module || layer_of(used).is_some_and(|layer| layer < own);
                if !allowed {
                    wrong.push(format!("{}:{number}: uses `{used}`", source.path));
                }
            }
            // A module inside the file, for its tests, is one step further from the root.
            let steps = source.depth() + usize::from(line.starts_with(' '));
            if line.contains(&"super::".repeat(steps)) {
                wrong.push(format!("{}:{number}: reaches the crate's root", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_task_layer_knows_the_runtime() {
    for source in sources().iter().filter(|source| source.module() != "task") {
        for (number, line) in source.code() {
            assert!(!line.contains("tokio::"), "{}:{number}: {line}", source.path);
        }
    }
}

#[test]
fn unsafe_code_is_where_it_is_said_to_be_and_nowhere_else() {
    let allows = |source: &&Source| {
        source.code().any(|(_, line)| {
            line.contains("unsafe_code") && (line.contains("allow(") || line.contains("expect("))
        })
    };
    let found: Vec<_> = sources().iter().filter(allows).map(|source| source.path.clone()).collect();
    assert_eq!(found, UNSAFE, "and say so in this list");
}

#[test]
fn no_file_is_longer_than_600_lines_and_the_front_page_fits_on_150() {
    for source in sources() {
        let most = if source.path == "lib.rs" { 150 } else { 600 };
        let lines = source.text.lines().count();
        assert!(lines <= most, "{}: {lines} lines", source.path);
    }
}
