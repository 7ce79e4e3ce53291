//! What a PTX text says of its kernels' parameters. Pure.

/// Sizes in bytes of the parameters of kernel `entry`, in order; `None` where the text has no such
/// kernel.
pub(super) fn param_sizes(ptx: &str, entry: &str) -> Option<Vec<usize>> {
    let list = parameter_list(ptx, entry)?;
    let params = list.split(',').map(str::trim).filter(|param| !param.is_empty());
    params.map(param_size).collect()
}

/// The names of the kernels in a text.
pub(super) fn entries(ptx: &str) -> Vec<&str> {
    let name = |after: &'_ str| after.trim_start().find(|c: char| c.is_whitespace() || c == '(');
    let after = ptx.split(".entry").skip(1);
    after.filter_map(|after| Some(&after.trim_start()[..name(after)?])).collect()
}

/// The number after `.version`, such as `8.0`; `None` where there is none.
pub(super) fn version(ptx: &str) -> Option<&str> {
    ptx.split(".version").nth(1)?.split_whitespace().next()
}

/// What stands between the parentheses after `.entry NAME`.
fn parameter_list<'a>(ptx: &'a str, entry: &str) -> Option<&'a str> {
    let mut rest = ptx;
    loop {
        rest = &rest[rest.find(".entry")? + ".entry".len()..];
        let Some(after) = rest.trim_start().strip_prefix(entry) else { continue };
        let after = after.trim_start();
        let Some(inside) = after.strip_prefix('(') else {
            // A kernel without parameters may have no list; a longer name is another kernel.
            if after.starts_with(['{', '.']) {
                return Some("");
            }
            continue;
        };
        return Some(&inside[..inside.find(')')?]);
    }
}

/// `.param .u64 name`, `.param .align 8 .b8 name[24]`, and what may stand between.
fn param_size(param: &str) -> Option<usize> {
    let mut element = None;
    let mut words = param.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            ".param" | ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
            ".align" => {
                words.next()?;
            }
            word if word.starts_with('.') => element = Some(type_size(word)?),
            name => {
                let count = match name.split_once('[') {
                    None => 1,
                    Some((_, count)) => count.strip_suffix(']')?.parse().ok()?,
                };
                return Some(element? * count);
            }
        }
    }
    None
}

fn type_size(name: &str) -> Option<usize> {
    let bits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    matches!(bits, "8" | "16" | "32" | "64" | "128")
        .then(|| bits.parse::<usize>().ok())
        .flatten()
        .map(|bits| bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 8.0
.target sm_75
.visible .entry work_twice(
\t.param .u64 work_twice_param_0
)
.visible .entry work(
\t.param .u64 work_param_0,
\t.param .u64 .ptr .global .align 4 work_param_1,
\t.param .u32 work_param_2,
\t.param .f32 work_param_3,
\t.param .align 8 .b8 work_param_4[24]
)
{ ret; }
.visible .entry bare
{ ret; }
.visible .entry none()
{ ret; }
";

    #[test]
    fn sizes_come_in_order_and_names_are_matched_whole() {
        assert_eq!(param_sizes(TEXT, "work"), Some(vec![8, 8, 4, 4, 24]));
        assert_eq!(param_sizes(TEXT, "work_twice"), Some(vec![8]));
        assert_eq!(param_sizes(TEXT, "none"), Some(vec![]));
        assert_eq!(param_sizes(TEXT, "bare"), Some(vec![]));
        assert_eq!(param_sizes(TEXT, "wor"), None);
        assert_eq!(param_sizes("", "work"), None);
    }

    #[test]
    fn the_version_and_the_names_of_all_kernels_are_found() {
        assert_eq!(version(TEXT), Some("8.0"));
        assert_eq!(version("#include"), None);
        assert_eq!(entries(TEXT), ["work_twice", "work", "bare", "none"]);
        assert!(entries("").is_empty());
    }
}
