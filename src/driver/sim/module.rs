//! Modules and functions: PTX text is taken for what its `.entry` lines say.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

/// Loaded modules and the functions taken of them, by handle.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Names of each module's kernels, with the function's handle once it was asked for.
    modules: HashMap<u64, HashMap<String, Option<u64>>>,
    /// The module of each function.
    functions: FxHashMap<u64, u64>,
}

impl Modules {
    pub(super) fn load(&mut self, handle: u64, kernels: Vec<String>) {
        self.modules.insert(handle, kernels.into_iter().map(|name| (name, None)).collect());
    }

    /// False where there is no such module.
    pub(super) fn unload(&mut self, handle: u64) -> bool {
        self.functions.retain(|_, module| *module != handle);
        self.modules.remove(&handle).is_some()
    }

    /// `None` where there is no such module; `Some(None)` where it has no such kernel. `fresh` is
    /// the function's handle if it was not asked for before.
    pub(super) fn function(&mut self, module: u64, name: &str, fresh: u64) -> Option<Option<u64>> {
        let Some(slot) = self.modules.get_mut(&module)?.get_mut(name) else {
            return Some(None);
        };
        let function = *slot.get_or_insert(fresh);
        self.functions.insert(function, module);
        Some(Some(function))
    }

    /// Modules loaded and not unloaded.
    pub(super) fn live(&self) -> usize {
        self.modules.len()
    }

    pub(super) fn has_function(&self, function: u64) -> bool {
        self.functions.contains_key(&function)
    }
}

/// Names of the kernels in PTX text; `None` for what is no PTX: it has no `.version`, or breaks off.
pub(super) fn kernels_of(ptx: &str) -> Option<Vec<String>> {
    let code: String = ptx.lines().flat_map(|line| [before_comment(line), "\n"]).collect();
    let count = |bracket| code.matches(bracket).count();
    if count('(') != count(')') || count('{') != count('}') {
        return None;
    }
    let mut words = code.split_whitespace();
    let mut version = false;
    let mut kernels = Vec::new();
    while let Some(word) = words.next() {
        version |= word == ".version";
        if word == ".entry"
            && let Some(name) = words.next()
        {
            kernels.push(name.split('(').next().unwrap_or(name).to_owned());
        }
    }
    version.then_some(kernels)
}

fn before_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_entry_lines() {
        let ptx = ".version 8.0\n.target sm_75\n// .visible .entry not_this(\n\
                   .visible .entry one(\n.param .u64 p\n)\n{ ret; }\n.visible .entry two ()\n{}";
        assert_eq!(kernels_of(ptx), Some(vec!["one".into(), "two".into()]));
        assert_eq!(kernels_of("hello"), None);
        assert_eq!(kernels_of(".version 8.0 .entry broken(.param .u64 a"), None);
    }

    #[test]
    fn a_function_keeps_its_handle_until_its_module_goes() {
        let mut modules = Modules::default();
        modules.load(1, vec!["k".into()]);
        assert_eq!(modules.function(1, "k", 2), Some(Some(2)));
        assert_eq!(modules.function(1, "k", 3), Some(Some(2)));
        assert_eq!(modules.function(1, "other", 4), Some(None));
        assert_eq!(modules.function(9, "k", 5), None);
        assert!(modules.unload(1) && !modules.has_function(2) && !modules.unload(1));
    }
}
