//! `#[launch(…)]` and `#[args(…)]`.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, LitStr, Result, Token, Type, bracketed};

use super::{Access, Errors, Memory, Param, ParamKind};

/// What `#[launch(…)]` says.
pub(crate) struct Launch {
    pub(crate) geometry: Geometry,
    pub(crate) shared: Option<Expr>,
    pub(crate) require: Vec<Expr>,
    pub(crate) cost: Cost,
    pub(crate) entry: Option<LitStr>,
}

pub(crate) enum Geometry {
    Items { items: Expr, block: Expr },
    Grid { grid: Expr, block: Expr },
}

pub(crate) enum Cost {
    Unknown,
    Arithmetic(Expr),
    Nanoseconds(Expr),
}

/// One CUDA parameter.
pub(crate) enum Arg {
    /// A slice or scalar by name: an index into the kernel's parameters.
    Param { index: usize, span: Span },
    /// `value as ty`
    Cast { value: Box<Expr>, ty: Box<Type> },
}

const LAUNCH_KEYS: &str = "`items`, `grid`, `block`, `shared`, `require`, `arithmetic`, \
                           `nanoseconds`, `fills`, `entry`";

impl Launch {
    /// Parses what is between the parentheses; marks the parameters named in `fills`. What is
    /// missing is missing `at`.
    pub(super) fn parse(input: ParseStream<'_>, at: Span, params: &mut [Param]) -> Result<Self> {
        let (mut items, mut grid, mut block, mut shared) = (None, None, None, None);
        let (mut arithmetic, mut nanoseconds, mut fills, mut entry) = (None, None, None, None);
        let mut require = Vec::new();
        while !input.is_empty() {
            let key = input.call(Ident::parse_any)?;
            input.parse::<Token![=]>()?;
            match key.to_string().as_str() {
                "items" => once(&mut items, &key, input.parse()?)?,
                "grid" => once(&mut grid, &key, input.parse::<Expr>()?)?,
                "block" => once(&mut block, &key, input.parse::<Expr>()?)?,
                "shared" => once(&mut shared, &key, input.parse()?)?,
                "require" => require.push(input.parse()?),
                "arithmetic" => once(&mut arithmetic, &key, input.parse()?)?,
                "nanoseconds" => once(&mut nanoseconds, &key, input.parse::<Expr>()?)?,
                "entry" => once(&mut entry, &key, input.parse::<LitStr>()?)?,
                "fills" => {
                    let list;
                    bracketed!(list in input);
                    let names = Punctuated::<Ident, Token![,]>::parse_terminated(&list)?;
                    once(&mut fills, &key, names)?;
                }
                _ => {
                    let message = format!("unknown key `{key}`; known are {LAUNCH_KEYS}");
                    return Err(Error::new(key.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }

        for name in fills.iter().flatten() {
            mark_filled(name, params)?;
        }
        let Some(block) = block else {
            return Err(Error::new(at, "`block` is missing: threads of a block"));
        };
        let geometry = match (items, grid) {
            (Some(items), None) => {
                if let Expr::Tuple(tuple) = &block {
                    let message = "with `items` a block has one dimension; more need `grid`";
                    return Err(Error::new(tuple.span(), message));
                }
                Geometry::Items { items, block }
            }
            (None, Some(grid)) => {
                check_dimensions(&grid)?;
                check_dimensions(&block)?;
                Geometry::Grid { grid, block }
            }
            (Some(_), Some(grid)) => {
                let message = "`items` and `grid` both say how many blocks: keep one";
                return Err(Error::new(grid.span(), message));
            }
            (None, None) => {
                let message = "say how many: `items = …` threads, or `grid = …` blocks";
                return Err(Error::new(at, message));
            }
        };
        let cost = match (arithmetic, nanoseconds) {
            (None, None) => Cost::Unknown,
            (Some(arithmetic), None) => Cost::Arithmetic(arithmetic),
            (None, Some(nanoseconds)) => Cost::Nanoseconds(nanoseconds),
            (Some(_), Some(nanoseconds)) => {
                let message = "`arithmetic` and `nanoseconds` both say how long: keep one";
                return Err(Error::new(nanoseconds.span(), message));
            }
        };
        if let Some(entry) = entry.as_ref().filter(|entry| !is_ptx_name(&entry.value())) {
            return Err(Error::new(entry.span(), "this is not a name that PTX can have"));
        }
        Ok(Launch { geometry, shared, require, cost, entry })
    }
}

fn once<T>(slot: &mut Option<T>, key: &Ident, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(Error::new(key.span(), format!("`{key}` is given twice")));
    }
    Ok(())
}

fn mark_filled(name: &Ident, params: &mut [Param]) -> Result<()> {
    match params.iter_mut().find(|param| param.ident == *name).map(|param| &mut param.kind) {
        Some(ParamKind::Memory(Memory { access: Access::Write { fills }, .. })) => *fills = true,
        Some(_) => {
            let message = format!("`{name}` is not written: `fills` names parameters that are");
            return Err(Error::new(name.span(), message));
        }
        None => return Err(no_parameter(name)),
    }
    Ok(())
}

fn no_parameter(name: &Ident) -> Error {
    Error::new(name.span(), format!("no parameter is named `{name}`"))
}

fn check_dimensions(dimensions: &Expr) -> Result<()> {
    match dimensions {
        Expr::Tuple(tuple) if !matches!(tuple.elems.len(), 2 | 3) => {
            Err(Error::new(tuple.span(), "dimensions are one number, or a tuple of 2 or 3"))
        }
        _ => Ok(()),
    }
}

/// PTX's identifiers, less `%` and `$` at odd places.
fn is_ptx_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    name.chars().all(plain) && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

impl Arg {
    pub(super) fn parse_list(input: ParseStream<'_>, params: &[Param]) -> Result<Vec<Self>> {
        let mut errors = Errors::default();
        let args = Punctuated::<Expr, Token![,]>::parse_terminated(input)?
            .into_iter()
            .filter_map(|arg| errors.take(Arg::parse(arg, params)))
            .collect();
        errors.and(Ok(args))
    }

    fn parse(arg: Expr, params: &[Param]) -> Result<Self> {
        match arg {
            Expr::Cast(cast) if cast.attrs.is_empty() => {
                Ok(Arg::Cast { value: cast.expr, ty: cast.ty })
            }
            Expr::Paren(paren) => Arg::parse(*paren.expr, params),
            Expr::Group(group) => Arg::parse(*group.expr, params),
            Expr::Path(path) if path.path.get_ident().is_some() => {
                let span = path.span();
                let name = path.path.require_ident()?;
                match params.iter().position(|param| param.ident == *name) {
                    Some(index) => Ok(Arg::Param { index, span }),
                    None => Err(Error::new(
                        span,
                        format!(
                            "no parameter is named `{name}`; for a value write `{name} as u32`"
                        ),
                    )),
                }
            }
            other => {
                let text = crate::text::of(&other);
                let text = match &other {
                    Expr::Binary(_) | Expr::Unary(_) | Expr::Range(_) => format!("({text})"),
                    _ => text,
                };
                let message = format!(
                    "an argument is a parameter's name or says its CUDA type: write `{text} as u32`"
                );
                Err(Error::new_spanned(other, message))
            }
        }
    }
}
