//! From a declaration to the items that the `headwater` crate's `__private` module understands.

use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Ident, Lit, LitInt, LitStr, Result, Token, Type};

use crate::parse::{
    Access, Arg, Block, Cost, Form, Geometry, Kernel, Launch, Memory, Param, ParamKind, is_cfg,
};
use crate::text;

/// The attribute as a pure function.
pub(crate) fn kernels(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let block = Block::parse(attribute, item)?;
    let kernels = block.kernels.iter().map(|kernel| kernel.expand(&block));
    let module = block.expand_module();
    let promise = block.expand_promise();
    Ok(quote! { #module #promise #(#kernels)* })
}

/// A local name that no token of the user's can mean, shown at `at` in messages.
fn local(name: &str, at: Span) -> Ident {
    Ident::new(name, Span::mixed_site().located_at(at))
}

fn only_cfg(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| is_cfg(attr))
}

impl Block {
    /// The module's static, and its registration.
    fn expand_module(&self) -> TokenStream {
        let (attrs, ptx) = (&self.attrs, &self.ptx);
        let cfgs = only_cfg(attrs);
        let module = format_ident!("__headwater_module_{}", self.kernels[0].ident.unraw());
        let members = self.kernels.iter().map(|kernel| {
            let (cfgs, decl) = (only_cfg(&kernel.attrs), kernel.decl());
            quote! { #(#cfgs)* &#decl }
        });
        quote! {
            #(#attrs)*
            #[doc(hidden)]
            #[allow(non_upper_case_globals)]
            static #module: ::headwater::__private::ModuleDecl =
                ::headwater::__private::ModuleDecl::new(
                    ::core::module_path!(),
                    #ptx,
                    &[#(#members),*],
                );
            #(#cfgs)*
            ::headwater::__private::inventory::submit! {
                ::headwater::__private::Registration::new(&#module)
            }
        }
    }

    /// One unsafe block for the lints that look for them (`unsafe_code`, Clippy's
    /// `undocumented_unsafe_blocks`). They pass over those inside the functions, which end in the
    /// expansion; all of this one lies at the user's `unsafe`, below the `SAFETY` comment.
    fn expand_promise(&self) -> TokenStream {
        let attrs = &self.attrs;
        // Does nothing: any unsafe operation makes the block a used one.
        let block = quote_spanned! {self.unsafe_token.span=>
            const _: () = unsafe { ::core::hint::assert_unchecked(true) };
        };
        quote! { #(#attrs)* #block }
    }
}

impl Kernel {
    fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    /// The name of the kernel's static.
    fn decl(&self) -> Ident {
        format_ident!("__headwater_kernel_{}", self.ident.unraw())
    }

    fn expand(&self, block: &Block) -> TokenStream {
        let decl = self.expand_decl(block);
        let function = self.expand_function(block);
        quote! { #decl #function }
    }

    fn expand_decl(&self, block: &Block) -> TokenStream {
        let (decl, name) = (self.decl(), self.name());
        let entry =
            self.launch.entry.clone().unwrap_or_else(|| LitStr::new(&name, self.ident.span()));
        let block_attrs = &block.attrs;
        let cfgs = only_cfg(&self.attrs);
        let sizes = self.args.iter().map(|arg| match arg {
            Arg::Cast { ty, .. } => size_of(ty),
            Arg::Param { index, .. } => match &self.params[*index].kind {
                ParamKind::Scalar(ty) => size_of(ty),
                ParamKind::Memory(_) => quote! { 8usize },
            },
        });
        quote! {
            #(#block_attrs)*
            #(#cfgs)*
            #[doc(hidden)]
            #[allow(non_upper_case_globals)]
            static #decl: ::headwater::__private::KernelDecl =
                ::headwater::__private::KernelDecl::new(#name, #entry, &[#(#sizes),*]);
        }
    }

    fn expand_function(&self, block: &Block) -> TokenStream {
        let Kernel { attrs, vis, fn_token, ident, .. } = self;
        let block_attrs = &block.attrs;
        let inputs = self.params.iter().map(Param::expand_input);
        let scalars = self.params.iter().filter_map(Param::expand_scalar_bounds);
        let twin_type = self.expand_twin_constant();
        let conversions = self.params.iter().filter_map(Param::expand_conversion);
        let requirements = self.launch.require.iter().map(|holds| self.expand_requirement(holds));
        let geometry = self.launch.geometry.expand();
        let args = (self.args.iter().enumerate()).map(|(i, arg)| self.expand_arg(i, arg));
        let (twin, twin_argument) = self.expand_twin(&block.unsafe_token);
        let launch = self.expand_launch(&block.unsafe_token, &twin_argument);
        let geometry_name = local("__geometry", ident.span());
        let has_memory = self.memory().next().is_some();
        let lifetime = has_memory.then(|| quote! { <'headwater> });
        let body = quote! {
            #(#scalars)*
            #twin_type
            #(#conversions)*
            #(#requirements)*
            let #geometry_name = #geometry;
            #(#args)*
            #twin
            #launch
        };
        // Signature and function begin at the user's `fn` and end at the user's `;`, so that what
        // lints say of functions holds for kernels, and is said there.
        let end = self.semi_token.span;
        let close = Token![>](end);
        let mut braced = Group::new(Delimiter::Brace, body);
        braced.set_span(end);
        quote! {
            #(#block_attrs)*
            #(#attrs)*
            #[allow(
                clippy::cast_lossless,
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                clippy::cast_precision_loss,
                clippy::cast_sign_loss,
                clippy::missing_errors_doc,
                clippy::too_many_arguments,
                clippy::unnecessary_cast
            )]
            #vis #fn_token #ident #lifetime (#(#inputs),*)
                -> ::headwater::Result<::headwater::Completion #close #braced
        }
    }

    /// `require = holds`
    fn expand_requirement(&self, holds: &Expr) -> TokenStream {
        let name = local("__holds", holds.span());
        let rejection = self.rejection(&text::of(holds));
        quote! {
            let #name: bool = #holds;
            if !#name {
                #rejection
            }
        }
    }

    fn rejection(&self, requirement: &str) -> TokenStream {
        let name = self.name();
        let sizes = self.memory().flat_map(|(ident, memory)| {
            memory.form.sizes().iter().map(move |size| {
                let size = Ident::new(size, ident.span());
                let shown = format!("{}.{size}()", ident.unraw());
                quote! { (#shown, #ident.#size()) }
            })
        });
        quote! {
            return ::core::result::Result::Err(
                ::headwater::__private::requirement(#name, #requirement, &[#(#sizes),*])
            );
        }
    }

    /// `let __pN = …;`
    fn expand_arg(&self, position: usize, arg: &Arg) -> TokenStream {
        let name = arg_name(position, arg);
        match arg {
            Arg::Param { index, span } => {
                let Param { ident, kind } = &self.params[*index];
                match kind {
                    ParamKind::Memory(_) => quote_spanned! {*span=>
                        let #name = ::headwater::__private::pointer(&#ident);
                    },
                    ParamKind::Scalar(ty) => quote! { let #name: #ty = #ident; },
                }
            }
            // A length is not cut: the kernel would silently do a part of its work.
            Arg::Cast { value, ty } if self.is_length(value) => {
                let requirement = format!("{} fits in {}", text::of(value), text::of(ty));
                let rejection = self.rejection(&requirement);
                quote! {
                    let ::core::result::Result::Ok(#name) =
                        <#ty as ::core::convert::TryFrom<usize>>::try_from(#value)
                    else {
                        #rejection
                    };
                }
            }
            Arg::Cast { value, ty } => quote! { let #name: #ty = #value as #ty; },
        }
    }

    /// Whether this is `slice.len()`, of a slice among the parameters, or the like of a tile.
    fn is_length(&self, value: &Expr) -> bool {
        let call = match value {
            Expr::MethodCall(call) => call,
            Expr::Paren(inner) => return self.is_length(&inner.expr),
            Expr::Group(inner) => return self.is_length(&inner.expr),
            _ => return false,
        };
        let Expr::Path(receiver) = &*call.receiver else {
            return false;
        };
        let of = |(ident, memory): (&Ident, &Memory)| {
            receiver.path.is_ident(ident)
                && memory.form.sizes().iter().any(|size| call.method == size)
        };
        call.args.is_empty() && self.memory().any(of)
    }

    /// The parameters that are device memory.
    fn memory(&self) -> impl Iterator<Item = (&Ident, &Memory)> {
        self.params.iter().filter_map(|param| match &param.kind {
            ParamKind::Memory(memory) => Some((&param.ident, memory)),
            ParamKind::Scalar(_) => None,
        })
    }

    /// The twin with its type spelled out, so that a wrong signature is an error at its path.
    fn expand_twin_constant(&self) -> Option<TokenStream> {
        let path = self.twin.as_ref()?;
        let name = local("__TWIN", path.span());
        let types = self.params.iter().map(|param| match &param.kind {
            ParamKind::Memory(memory) => memory.twin_type(),
            ParamKind::Scalar(ty) => quote! { #ty },
        });
        Some(quote! { const #name: fn(#(#types),*) = #path; })
    }

    /// `let __twin = …;` and what refers to it.
    fn expand_twin(&self, unsafe_token: &Token![unsafe]) -> (TokenStream, TokenStream) {
        let Some(path) = &self.twin else {
            return (TokenStream::new(), quote! { ::core::option::Option::None });
        };
        let memory = local("__memory", path.span());
        let (twin, function) = (local("__twin", path.span()), local("__TWIN", path.span()));
        let captures = self.memory().map(|(ident, _)| {
            quote! { let #ident = ::headwater::__private::twin(&#ident); }
        });
        let resolutions = self.memory().map(|(ident, _)| {
            quote! { let #ident = #unsafe_token { #ident.get(#memory) }?; }
        });
        let idents = self.params.iter().map(|param| &param.ident);
        let definition = quote! {
            let #twin = || -> ::headwater::__private::TwinJob {
                #(#captures)*
                ::std::boxed::Box::new(
                    move |#memory: &dyn ::headwater::__private::TwinMemory| {
                        #(#resolutions)*
                        #function(#(#idents),*);
                        ::core::result::Result::Ok(())
                    }
                )
            };
        };
        (definition, quote! { ::core::option::Option::Some(&#twin) })
    }

    /// The call of the runtime. All that the user wrote is evaluated before, outside `unsafe`.
    fn expand_launch(&self, unsafe_token: &Token![unsafe], twin: &TokenStream) -> TokenStream {
        let at = self.ident.span();
        let decl = self.decl();
        let Launch { shared, cost, .. } = &self.launch;
        let shared = shared.as_ref().map_or_else(|| quote! { 0u32 }, ToTokens::to_token_stream);
        let cost = match cost {
            Cost::Unknown => quote! { ::headwater::__private::KernelCost::Unknown },
            Cost::Arithmetic(n) => quote! { ::headwater::__private::KernelCost::Arithmetic(#n) },
            Cost::Nanoseconds(n) => quote! { ::headwater::__private::KernelCost::Nanoseconds(#n) },
        };
        let params = self.args.iter().enumerate().map(|(i, arg)| {
            let name = arg_name(i, arg);
            quote_spanned! {name.span()=> ::headwater::__private::param(&#name) }
        });
        let arguments = self.params.iter().filter_map(Param::expand_argument);
        let [geometry, call] = ["__geometry", "__call"].map(|name| local(name, at));
        // The arrays are named, not temporaries in the literal: the call outlives that statement.
        let [param_list, argument_list] = ["__params", "__arguments"].map(|name| local(name, at));
        quote! {
            let #param_list = [#(#params),*];
            let #argument_list = [#(#arguments),*];
            let #call = ::headwater::__private::LaunchCall {
                kernel: &#decl,
                geometry: #geometry,
                shared_bytes: #shared,
                cost: #cost,
                params: &#param_list,
                arguments: &#argument_list,
                twin: #twin,
            };
            #unsafe_token { ::headwater::__private::launch(#call) }
        }
    }
}

fn size_of(ty: &Type) -> TokenStream {
    quote! { ::core::mem::size_of::<#ty>() }
}

fn arg_name(position: usize, arg: &Arg) -> Ident {
    let at = match arg {
        Arg::Param { span, .. } => *span,
        Arg::Cast { value, .. } => value.span(),
    };
    local(&format!("__p{position}"), at)
}

impl Form {
    /// The methods that say how large such memory is, all of type `usize`.
    fn sizes(self) -> &'static [&'static str] {
        match self {
            Form::Slice => &["len"],
            Form::Tile => &["rows", "columns", "stride"],
        }
    }
}

impl Memory {
    fn writes(&self) -> bool {
        self.access != Access::Read
    }

    /// The view, the trait that gives one, and its method.
    fn view(&self) -> [Ident; 3] {
        let names = match (self.form, self.writes()) {
            (Form::Slice, false) => ["DeviceSlice", "IntoDeviceSlice", "into_device_slice"],
            (Form::Slice, true) => {
                ["DeviceSliceMut", "IntoDeviceSliceMut", "into_device_slice_mut"]
            }
            (Form::Tile, false) => ["DeviceTile", "IntoDeviceTile", "into_device_tile"],
            (Form::Tile, true) => ["DeviceTileMut", "IntoDeviceTileMut", "into_device_tile_mut"],
        };
        names.map(|name| format_ident!("{name}"))
    }

    /// What the twin gets.
    fn twin_type(&self) -> TokenStream {
        let element = &self.element;
        match (self.form, self.writes()) {
            (Form::Slice, false) => quote! { &[#element] },
            (Form::Slice, true) => quote! { &mut [#element] },
            (Form::Tile, false) => quote! { ::headwater::TileRef<'_, #element> },
            (Form::Tile, true) => quote! { ::headwater::TileMut<'_, #element> },
        }
    }
}

impl Param {
    fn expand_input(&self) -> TokenStream {
        let Param { ident, kind } = self;
        match kind {
            ParamKind::Memory(memory) => {
                let ([_, into, _], element) = (memory.view(), &memory.element);
                quote! { #ident: impl ::headwater::#into<'headwater, #element> }
            }
            ParamKind::Scalar(ty) => quote! { #ident: #ty },
        }
    }

    fn expand_conversion(&self) -> Option<TokenStream> {
        let Param { ident, kind } = self;
        let ParamKind::Memory(memory) = kind else {
            return None;
        };
        let ([view, into, convert], element) = (memory.view(), &memory.element);
        Some(quote! {
            let #ident: ::headwater::#view<'headwater, #element> =
                ::headwater::#into::#convert(#ident);
        })
    }

    /// What a scalar's type must be, beside `NoUninit`, which `param` asks for.
    fn expand_scalar_bounds(&self) -> Option<TokenStream> {
        let ParamKind::Scalar(ty) = &self.kind else {
            return None;
        };
        let name = local("__scalar", ty.span());
        Some(quote_spanned! {ty.span()=>
            const _: fn() = || {
                fn #name<T: ::core::marker::Copy + ::core::marker::Send + 'static>() {}
                #name::<#ty>();
            };
        })
    }

    fn expand_argument(&self) -> Option<TokenStream> {
        let ident = &self.ident;
        let name = ident.unraw().to_string();
        let ParamKind::Memory(memory) = &self.kind else {
            return None;
        };
        let fills = memory.access == Access::Write { fills: true };
        Some(quote! { ::headwater::__private::argument(#name, &#ident, #fills) })
    }
}

impl Geometry {
    fn expand(&self) -> TokenStream {
        match self {
            Geometry::Items { items, block } => {
                quote! { ::headwater::__private::Geometry::items(#items, #block) }
            }
            Geometry::Grid { grid, block } => {
                let (grid, block) = (dimensions(grid), dimensions(block));
                quote! { ::headwater::__private::Geometry::grid(#grid, #block) }
            }
        }
    }
}

/// Dimensions as the runtime's generic `grid` takes them. What is literally a number is made a
/// `u32`, since a bare literal would be an `i32` there.
fn dimensions(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Tuple(tuple) => {
            let elements = tuple.elems.iter().map(number);
            quote! { (#(#elements),*) }
        }
        Expr::Lit(_) | Expr::Binary(_) | Expr::Cast(_) => number(expr),
        Expr::Paren(paren) => dimensions(&paren.expr),
        _ => quote! { #expr },
    }
}

fn number(expr: &Expr) -> TokenStream {
    if let Expr::Lit(literal) = expr
        && let Lit::Int(int) = &literal.lit
        && int.suffix().is_empty()
    {
        return LitInt::new(&format!("{int}u32"), int.span()).into_token_stream();
    }
    quote! { ::core::convert::identity::<u32>(#expr) }
}
