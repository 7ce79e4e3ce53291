//! The declaration model: what a block of kernels says, checked as far as syntax goes.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, ForeignItem, ForeignItemFn, GenericArgument, Ident,
    ItemForeignMod, Lifetime, LitStr, Meta, Pat, Path, PathArguments, Result, ReturnType, Safety,
    Signature, Token, Type, Visibility,
};

mod launch;

pub(crate) use launch::{Arg, Cost, Geometry, Launch};

/// A whole block: `#[kernels(ptx = …)] unsafe extern "C" { … }`.
pub(crate) struct Block {
    pub(crate) unsafe_token: Token![unsafe],
    /// `cfg` and lint attributes, which hold for every item made of the block.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) ptx: Expr,
    /// Never empty.
    pub(crate) kernels: Vec<Kernel>,
}

pub(crate) struct Kernel {
    /// All that is not `launch`, `args` or `twin`.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) fn_token: Token![fn],
    pub(crate) ident: Ident,
    pub(crate) semi_token: Token![;],
    pub(crate) params: Vec<Param>,
    pub(crate) launch: Launch,
    pub(crate) args: Vec<Arg>,
    pub(crate) twin: Option<Path>,
}

pub(crate) struct Param {
    pub(crate) ident: Ident,
    pub(crate) kind: ParamKind,
}

pub(crate) enum ParamKind {
    Memory(Memory),
    /// `T`
    Scalar(Type),
}

/// Device memory with elements of that type.
pub(crate) struct Memory {
    pub(crate) element: Type,
    pub(crate) form: Form,
    pub(crate) access: Access,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Form {
    /// `&[T]`, `&mut [T]`
    Slice,
    /// `TileRef<'_, T>`, `TileMut<'_, T>`
    Tile,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Access {
    Read,
    Write { fills: bool },
}

/// All errors of a block, so that one compilation shows them together.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    fn add(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(Error::new(span, message));
    }

    /// The value of `result`, or its error noted.
    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// `last`, if it and all before went well.
    fn and<T>(self, last: Result<T>) -> Result<T> {
        match (self.0, last) {
            (None, last) => last,
            (Some(error), Ok(_)) => Err(error),
            (Some(mut error), Err(last)) => {
                error.combine(last);
                Err(error)
            }
        }
    }
}

impl Block {
    pub(crate) fn parse(attribute: TokenStream, item: TokenStream) -> Result<Self> {
        let mut errors = Errors::default();
        let ptx = parse_ptx.parse2(attribute);
        let block = match parse_block(item) {
            Ok(block) => block,
            Err(error) => {
                errors.take(ptx);
                return errors.and(Err(error));
            }
        };

        let abi = block.abi.name.as_ref();
        if abi.is_none_or(|name| name.value() != "C") {
            errors.add(
                abi.map_or(block.abi.extern_token.span, LitStr::span),
                "kernels are declared in a block of ABI \"C\": `unsafe extern \"C\" { … }`",
            );
        }
        let Some(unsafe_token) = block.unsafety else {
            errors.take(ptx);
            return errors.and(Err(Error::new(
                block.abi.extern_token.span,
                "write `unsafe extern \"C\"`: the block promises what its kernels touch, and the \
                 compiler cannot check that",
            )));
        };

        let mut attrs = Vec::new();
        for attr in block.attrs {
            if is_cfg(&attr) || is_lint(&attr) {
                attrs.push(without_expectation(attr));
            } else if !attr.path().is_ident("doc") {
                errors.add(
                    attr.span(),
                    "only `cfg`, lint attributes and docs go on a block of kernels; put this on \
                     the kernel it means",
                );
            }
        }

        let mut kernels = Vec::new();
        if block.items.is_empty() {
            errors.add(block.brace_token.span.join(), "this block declares no kernel");
        }
        for item in block.items {
            match item {
                ForeignItem::Fn(function) => {
                    kernels.extend(errors.take(Kernel::parse(function)));
                }
                ForeignItem::Verbatim(tokens) => errors.add(
                    tokens.span(),
                    "a kernel is declared, not defined here: `pub safe fn name(…);`",
                ),
                other => {
                    errors.add(other.span(), "only functions are declared in a block of kernels")
                }
            }
        }
        let ptx = errors.and(ptx)?;
        Ok(Block { unsafe_token, attrs, ptx, kernels })
    }
}

fn parse_block(item: TokenStream) -> Result<ItemForeignMod> {
    let extern_block = starts_extern(item.clone());
    let span = item.span();
    // An error inside an `extern` block is worth more than that something else is none.
    syn::parse2(item).map_err(|error| match extern_block {
        true => error,
        false => Error::new(
            span,
            "`kernels` goes on a block of declarations: `unsafe extern \"C\" { … }`",
        ),
    })
}

/// `ptx = expression`
fn parse_ptx(input: ParseStream<'_>) -> Result<Expr> {
    const FORM: &str =
        "name the module's text: `#[headwater::kernels(ptx = include_str!(\"….ptx\"))]`";
    if input.is_empty() {
        return Err(Error::new(Span::call_site(), FORM));
    }
    let key = input.call(Ident::parse_any)?;
    if key != "ptx" {
        return Err(Error::new(key.span(), FORM));
    }
    input.parse::<Token![=]>()?;
    let ptx = input.parse()?;
    input.parse::<Option<Token![,]>>()?;
    if input.is_empty() { Ok(ptx) } else { Err(input.error("only `ptx` goes here")) }
}

fn starts_extern(item: TokenStream) -> bool {
    let start = |input: ParseStream<'_>| {
        input.call(Attribute::parse_outer)?;
        input.parse::<Option<Token![unsafe]>>()?;
        let found = input.peek(Token![extern]);
        input.parse::<TokenStream>()?;
        Ok(found)
    };
    start.parse2(item).unwrap_or(false)
}

pub(crate) fn is_cfg(attr: &Attribute) -> bool {
    attr.path().is_ident("cfg")
}

fn is_lint(attr: &Attribute) -> bool {
    ["allow", "expect", "warn", "deny", "forbid"].iter().any(|lint| attr.path().is_ident(lint))
}

/// `expect` as `allow`: what is expected of the block is not found in every item made of it.
fn without_expectation(mut attr: Attribute) -> Attribute {
    if let Meta::List(list) = &mut attr.meta
        && list.path.is_ident("expect")
    {
        list.path = Ident::new("allow", list.path.span()).into();
    }
    attr
}

impl Kernel {
    fn parse(function: ForeignItemFn) -> Result<Self> {
        let mut errors = Errors::default();
        let sig = function.sig;
        check_signature(&sig, &mut errors);
        let mut params: Vec<Param> =
            sig.inputs.iter().filter_map(|input| errors.take(Param::parse(input))).collect();
        let params_whole = params.len() == sig.inputs.len();

        let (mut launch, mut args, mut twin) = (None, None, None);
        let mut attrs = Vec::new();
        for attr in function.attrs {
            let slot = match &attr.path().get_ident().map(Ident::to_string).as_deref() {
                Some("launch") => &mut launch,
                Some("args") => &mut args,
                Some("twin") => &mut twin,
                Some("link_name") => {
                    errors.add(attr.span(), "the PTX entry is named by `#[launch(entry = \"…\")]`");
                    continue;
                }
                _ => {
                    attrs.push(attr);
                    continue;
                }
            };
            if slot.is_some() {
                errors.add(attr.span(), "this attribute is given twice");
            } else {
                *slot = Some(attr);
            }
        }

        let launch = match launch {
            Some(attr) => attr.parse_args_with(|input: ParseStream<'_>| {
                Launch::parse(input, attr.path().span(), &mut params)
            }),
            None => Err(Error::new(
                sig.ident.span(),
                format!(
                    "kernel `{}` says nothing of its geometry: add `#[launch(items = …, block = \
                     …)]` or `#[launch(grid = …, block = …)]`",
                    sig.ident
                ),
            )),
        };
        // Names are looked up among the parameters, so not while some of them are in doubt.
        let args = match args {
            Some(attr) if params_whole => {
                let parser = |input: ParseStream<'_>| Arg::parse_list(input, &params);
                errors.take(attr.parse_args_with(parser)).unwrap_or_default()
            }
            _ => (params.iter().enumerate())
                .map(|(index, param)| Arg::Param { index, span: param.ident.span() })
                .collect(),
        };
        let twin = twin.and_then(|attr| {
            errors.take(attr.parse_args::<Path>().map_err(|error| {
                let hint = "a twin is the path of a function: `#[twin(path)]`";
                Error::new(error.span(), hint)
            }))
        });

        let launch = errors.and(launch)?;
        Ok(Kernel {
            attrs,
            vis: function.vis,
            fn_token: sig.fn_token,
            ident: sig.ident,
            semi_token: function.semi_token,
            params,
            launch,
            args,
            twin,
        })
    }
}

fn check_signature(sig: &Signature, errors: &mut Errors) {
    match &sig.safety {
        Safety::Safe(_) => {}
        Safety::Unsafe(token) => errors.add(
            token.span,
            "a declared kernel is safe to call: write `safe fn`, and `require` what makes it so",
        ),
        Safety::Default => errors.add(
            sig.fn_token.span,
            "write `safe fn`: callers of a declared kernel need no `unsafe`",
        ),
    }
    if let ReturnType::Type(arrow, ty) = &sig.output {
        let message = "a kernel returns nothing; the function made of it returns \
                       `headwater::Result<headwater::Completion>`";
        errors.push(Error::new(arrow.spans[0].join(ty.span()).unwrap_or(ty.span()), message));
    }
    if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
        errors.add(
            sig.generics.params.span(),
            "a kernel is one PTX entry and cannot be generic; leave lifetimes out, too",
        );
    }
    if let Some(variadic) = &sig.variadic {
        errors.add(variadic.span(), "a kernel has a fixed number of parameters");
    }
}

impl Param {
    fn parse(input: &FnArg) -> Result<Self> {
        let FnArg::Typed(input) = input else {
            return Err(Error::new(input.span(), "a kernel has no `self`"));
        };
        if let Some(attr) = input.attrs.first() {
            return Err(Error::new(attr.span(), "a kernel's parameter takes no attributes"));
        }
        let ident = match &*input.pat {
            Pat::Ident(pat) if pat.by_ref.is_none() && pat.mutability.is_none() => {
                pat.ident.clone()
            }
            pat => {
                return Err(Error::new(pat.span(), "a kernel's parameter is a plain name"));
            }
        };
        Ok(Param { ident, kind: ParamKind::parse(&input.ty)? })
    }
}

impl ParamKind {
    fn parse(ty: &Type) -> Result<Self> {
        const FORMS: &str = "a kernel's parameter is `&[T]`, `&mut [T]`, `TileRef<'_, T>`, \
                             `TileMut<'_, T>`, or a scalar or struct by value";
        const WRITE: Access = Access::Write { fills: false };
        match ty {
            Type::Reference(reference) => {
                let Type::Slice(slice) = &*reference.elem else {
                    return Err(Error::new(ty.span(), FORMS));
                };
                if let Some(lifetime) = &reference.lifetime {
                    return Err(named(lifetime));
                }
                let access = if reference.mutability.is_some() { WRITE } else { Access::Read };
                let element = (*slice.elem).clone();
                Ok(ParamKind::Memory(Memory { element, form: Form::Slice, access }))
            }
            Type::Group(group) => ParamKind::parse(&group.elem),
            Type::Paren(paren) => ParamKind::parse(&paren.elem),
            Type::Path(path) => {
                let last = path.path.segments.last().filter(|_| path.qself.is_none());
                let access = match last.map(|last| last.ident.to_string()).as_deref() {
                    Some("TileRef") => Access::Read,
                    Some("TileMut") => WRITE,
                    _ => return Ok(ParamKind::Scalar(ty.clone())),
                };
                let element = tile_element(last.map(|last| &last.arguments), ty.span())?;
                Ok(ParamKind::Memory(Memory { element, form: Form::Tile, access }))
            }
            Type::Array(_) | Type::Macro(_) | Type::Tuple(_) => Ok(ParamKind::Scalar(ty.clone())),
            _ => Err(Error::new(ty.span(), FORMS)),
        }
    }
}

/// `T` of `TileRef<'_, T>` or `TileRef<T>`.
fn tile_element(arguments: Option<&PathArguments>, at: Span) -> Result<Type> {
    let mut elements = Vec::new();
    if let Some(PathArguments::AngleBracketed(arguments)) = arguments {
        for argument in &arguments.args {
            match argument {
                GenericArgument::Lifetime(lifetime) if lifetime.ident != "_" => {
                    return Err(named(lifetime));
                }
                GenericArgument::Lifetime(_) => {}
                GenericArgument::Type(element) => elements.push(element.clone()),
                other => return Err(Error::new(other.span(), "a tile has one type of elements")),
            }
        }
    }
    match (elements.pop(), elements.is_empty()) {
        (Some(element), true) => Ok(element),
        _ => Err(Error::new(at, "say what its elements are: `TileRef<'_, T>`, `TileMut<'_, T>`")),
    }
}

fn named(lifetime: &Lifetime) -> Error {
    Error::new(lifetime.span(), "leave the lifetime out: a borrow lasts for the call")
}
