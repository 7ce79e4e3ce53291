//! The attribute as a function of tokens: what it makes, and what it says to mistakes.

use quote::quote;

use crate::{expand, text};

/// What the block with `item` expands to, spaced as `TokenStream` prints it.
fn expansion(item: proc_macro2::TokenStream) -> String {
    match expand::kernels(quote! { ptx = "the text" }, item) {
        Ok(tokens) => tokens.to_string(),
        Err(error) => panic!("{error}"),
    }
}

/// All messages that `item` brings.
fn messages(item: proc_macro2::TokenStream) -> Vec<String> {
    messages_with(quote! { ptx = "the text" }, item)
}

fn messages_with(
    attribute: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> Vec<String> {
    match expand::kernels(attribute, item) {
        Ok(tokens) => panic!("was accepted: {tokens}"),
        Err(error) => error.into_iter().map(|one| one.to_string()).collect(),
    }
}

/// The one message that a block with `kernel` brings.
fn message(kernel: proc_macro2::TokenStream) -> String {
    let all = messages(quote! { unsafe extern "C" { #kernel } });
    assert_eq!(all.len(), 1, "{all:?}");
    all.concat()
}

#[track_caller]
fn assert_has(text: &str, part: proc_macro2::TokenStream) {
    // `> >` or `>>`: spaces are no part of what is compared.
    let close = |text: &str| text.replace(' ', "");
    let part = part.to_string();
    assert!(close(text).contains(&close(&part)), "{part}\nis not in\n{text}");
}

fn work() -> String {
    expansion(quote! {
        unsafe extern "C" {
            /// Works.
            #[launch(items = output.len(), block = 256, require = input.len() == output.len())]
            #[args(input, output, output.len() as u32, rounds, rounds as f64)]
            #[twin(work_on_host)]
            pub safe fn work(input: &[f32], output: &mut [f32], rounds: u32);
        }
    })
}

#[test]
fn the_signature_takes_slices_by_into_and_scalars_by_value() {
    assert_has(
        &work(),
        quote! {
            pub fn work<'headwater>(
                input: impl ::headwater::IntoDeviceSlice<'headwater, f32>,
                output: impl ::headwater::IntoDeviceSliceMut<'headwater, f32>,
                rounds: u32
            ) -> ::headwater::Result<::headwater::Completion>
        },
    );
}

#[test]
fn docs_and_attributes_stay_on_the_function() {
    let text = expansion(quote! {
        unsafe extern "C" {
            #[launch(grid = 1, block = 32)]
            #[deprecated]
            #[twin(host)]
            pub(crate) safe fn old();
        }
    });
    assert_has(&text, quote! { #[deprecated] });
    assert!(!text.contains("# [launch") && !text.contains("# [twin"), "{text}");
    assert_has(&work(), quote! { #[doc = r" Works."] });
}

#[test]
fn the_declaration_lists_parameter_sizes_in_order() {
    assert_has(
        &work(),
        quote! {
            ::headwater::__private::KernelDecl::new("work", "work", &[
                8usize, 8usize, ::core::mem::size_of::<u32>(), ::core::mem::size_of::<u32>(),
                ::core::mem::size_of::<f64>()
            ])
        },
    );
}

#[test]
fn without_args_the_kernel_takes_the_parameters_as_declared() {
    let text = expansion(quote! {
        unsafe extern "C" {
            #[launch(items = x.len(), block = 256, entry = "set_f32")]
            safe fn set(value: f32, x: &mut [f32]);
        }
    });
    assert_has(
        &text,
        quote! { KernelDecl::new("set", "set_f32", &[::core::mem::size_of::<f32>(), 8usize]) },
    );
    assert_has(&text, quote! { twin: ::core::option::Option::None });
}

#[test]
fn a_requirement_is_checked_and_told_as_it_was_written() {
    assert_has(
        &work(),
        quote! {
            let __holds: bool = input.len() == output.len();
            if !__holds {
                return ::core::result::Result::Err(
                    ::headwater::__private::requirement(
                        "work",
                        "input.len() == output.len()",
                        &[("input.len()", input.len()), ("output.len()", output.len())]
                    )
                );
            }
        },
    );
}

#[test]
fn a_length_is_checked_and_other_values_are_cast() {
    let text = work();
    assert_has(&text, quote! { <u32 as ::core::convert::TryFrom<usize>>::try_from(output.len()) });
    assert_has(&text, quote! { "output.len() fits in u32" });
    assert_has(&text, quote! { let __p4: f64 = rounds as f64; });
}

#[test]
fn a_literal_dimension_is_a_u32() {
    let text = expansion(quote! {
        unsafe extern "C" {
            #[launch(grid = (n / 2, 3), block = 64)]
            safe fn tiles(n: u32);
        }
    });
    assert_has(
        &text,
        quote! { Geometry::grid((::core::convert::identity::<u32>(n / 2), 3u32), 64u32) },
    );
}

#[test]
fn the_twin_is_checked_against_the_declared_signature() {
    assert_has(&work(), quote! { const __TWIN: fn(&[f32], &mut [f32], u32) = work_on_host; });
}

/// A kernel that takes matrices.
fn tiles() -> String {
    expansion(quote! {
        unsafe extern "C" {
            #[launch(items = to.rows(), block = 256, require = from.rows() == to.rows(), fills = [to])]
            #[args(from, from.stride() as u32, to, to.rows() as u32, to.stride() as u64)]
            #[twin(host)]
            safe fn copy(from: headwater::TileRef<'_, f32>, to: TileMut<f32>);
        }
    })
}

#[test]
fn a_tile_is_taken_by_into_and_stands_for_its_pointer() {
    let text = tiles();
    assert_has(
        &text,
        quote! {
            from: impl ::headwater::IntoDeviceTile<'headwater, f32>,
            to: impl ::headwater::IntoDeviceTileMut<'headwater, f32>
        },
    );
    assert_has(
        &text,
        quote! {
            let to: ::headwater::DeviceTileMut<'headwater, f32> =
                ::headwater::IntoDeviceTileMut::into_device_tile_mut(to);
        },
    );
    assert_has(&text, quote! { let __p0 = ::headwater::__private::pointer(&from); });
    assert_has(
        &text,
        quote! {
            &[8usize, ::core::mem::size_of::<u32>(), 8usize, ::core::mem::size_of::<u32>(),
              ::core::mem::size_of::<u64>()]
        },
    );
    assert_has(&text, quote! { argument("to", &to, true) });
}

#[test]
fn rows_columns_and_strides_are_checked_as_lengths_are_and_told_with_what_is_required() {
    let text = tiles();
    assert_has(&text, quote! { <u32 as ::core::convert::TryFrom<usize>>::try_from(from.stride()) });
    assert_has(&text, quote! { <u64 as ::core::convert::TryFrom<usize>>::try_from(to.stride()) });
    assert_has(&text, quote! { "to.rows() fits in u32" });
    assert_has(
        &text,
        quote! {
            &[("from.rows()", from.rows()), ("from.columns()", from.columns()),
              ("from.stride()", from.stride()), ("to.rows()", to.rows()),
              ("to.columns()", to.columns()), ("to.stride()", to.stride())]
        },
    );
}

#[test]
fn the_twin_of_a_kernel_that_takes_tiles_gets_references_to_rows() {
    let text = tiles();
    assert_has(
        &text,
        quote! {
            const __TWIN: fn(::headwater::TileRef<'_, f32>, ::headwater::TileMut<'_, f32>) = host;
        },
    );
    assert_has(&text, quote! { let from = ::headwater::__private::twin(&from); });
}

#[test]
fn only_what_is_in_fills_counts_as_filled() {
    let text = expansion(quote! {
        unsafe extern "C" {
            #[launch(items = a.len(), block = 256, fills = [b])]
            safe fn two(a: &mut [f32], b: &mut [f32]);
        }
    });
    assert_has(&text, quote! { argument("a", &a, false) });
    assert_has(&text, quote! { argument("b", &b, true) });
}

#[test]
fn a_block_is_one_module_named_after_its_first_kernel() {
    let text = expansion(quote! {
        unsafe extern "C" {
            #[cfg(unix)]
            #[launch(grid = 1, block = 1)]
            safe fn first();
            #[launch(grid = 1, block = 1)]
            safe fn r#loop();
        }
    });
    assert_has(&text, quote! { static __headwater_module_first: });
    assert_has(
        &text,
        quote! { &[#[cfg(unix)] &__headwater_kernel_first, &__headwater_kernel_loop] },
    );
    assert_has(&text, quote! { #[cfg(unix)] #[doc(hidden)] });
}

#[test]
fn cfg_and_lints_of_the_block_hold_for_every_item() {
    let text = expansion(quote! {
        #[cfg(unix)]
        unsafe extern "C" {
            #[launch(grid = 1, block = 1)]
            safe fn first();
        }
    });
    // Module, registration, promise, kernel, function.
    assert_eq!(text.matches(&quote! { #[cfg(unix)] }.to_string()).count(), 5, "{text}");
}

#[test]
fn what_is_expected_of_the_block_is_allowed_in_its_items() {
    let text = expansion(quote! {
        #[expect(unsafe_code, reason = "vouched for")]
        unsafe extern "C" {
            #[launch(grid = 1, block = 1)]
            safe fn first();
        }
    });
    assert_has(&text, quote! { #[allow(unsafe_code, reason = "vouched for")] const _: () });
    assert!(!text.contains("expect"), "{text}");
}

#[test]
fn mistakes_in_the_block() {
    let all = messages(quote! { fn work() {} });
    assert_eq!(all, [r#"`kernels` goes on a block of declarations: `unsafe extern "C" { … }`"#]);
    let all = messages(quote! { extern "C" { safe fn work(); } });
    assert!(all[0].starts_with(r#"write `unsafe extern "C"`: the block promises"#), "{all:?}");
    let all = messages(quote! { unsafe extern "system" { safe fn work(); } });
    assert!(all[0].starts_with(r#"kernels are declared in a block of ABI "C""#), "{all:?}");
    let all = messages(quote! { unsafe extern "C" {} });
    assert_eq!(all, ["this block declares no kernel"]);
    let all = messages(quote! { unsafe extern "C" { static X: u32; safe fn work() {} } });
    assert_eq!(
        all,
        [
            "only functions are declared in a block of kernels",
            "a kernel is declared, not defined here: `pub safe fn name(…);`",
        ]
    );
}

#[test]
fn mistakes_in_the_attribute() {
    let item = quote! { unsafe extern "C" { #[launch(grid = 1, block = 1)] safe fn work(); } };
    for attribute in [quote! {}, quote! { cubin = "x" }] {
        let all = messages_with(attribute, item.clone());
        assert!(all[0].starts_with("name the module's text"), "{all:?}");
    }
    let all = messages_with(quote! { ptx = "a", ptx = "b" }, item);
    assert_eq!(all, ["only `ptx` goes here"]);
}

#[test]
fn mistakes_in_the_signature() {
    let launch = quote! { #[launch(grid = 1, block = 1)] };
    for (signature, expected) in [
        (quote! { fn k(); }, "write `safe fn`: callers"),
        (quote! { unsafe fn k(); }, "a declared kernel is safe to call"),
        (quote! { safe fn k() -> u32; }, "a kernel returns nothing"),
        (quote! { safe fn k<T>(x: &[T]); }, "a kernel is one PTX entry and cannot be generic"),
        (quote! { safe fn k((a, b): (u32, u32)); }, "a kernel's parameter is a plain name"),
        (quote! { safe fn k(mut a: u32); }, "a kernel's parameter is a plain name"),
        (quote! { safe fn k(a: &u32); }, "a kernel's parameter is `&[T]`, `&mut [T]`, `TileRef"),
        (
            quote! { safe fn k(a: *const u32); },
            "a kernel's parameter is `&[T]`, `&mut [T]`, `TileRef",
        ),
        (quote! { safe fn k(a: &'static [u32]); }, "leave the lifetime out"),
        (quote! { safe fn k(a: TileRef<'static, u32>); }, "leave the lifetime out"),
        (quote! { safe fn k(a: TileMut); }, "say what its elements are: `TileRef<'_, T>`"),
        (quote! { safe fn k(a: TileRef<'_, u8, u8>); }, "say what its elements are"),
        (quote! { safe fn k(a: TileRef<'_, 3>); }, "a tile has one type of elements"),
        (quote! { safe fn k(a: &TileRef<'_, u8>); }, "a kernel's parameter is `&[T]`, `&mut [T]`"),
        (quote! { safe fn k(a: u32, ...); }, "a kernel has a fixed number of parameters"),
    ] {
        let message = message(quote! { #launch #signature });
        assert!(message.starts_with(expected), "{signature}: {message}");
    }
}

#[test]
fn mistakes_in_launch() {
    let missing = message(quote! { safe fn k(); });
    assert!(missing.starts_with("kernel `k` says nothing of its geometry"), "{missing}");
    for (launch, expected) in [
        (quote! { items = 1 }, "`block` is missing"),
        (quote! { block = 1 }, "say how many"),
        (quote! { items = 1, grid = 1, block = 1 }, "`items` and `grid` both"),
        (quote! { items = 1, block = (1, 1) }, "with `items` a block has one dimension"),
        (quote! { grid = (1, 2, 3, 4), block = 1 }, "dimensions are one number, or"),
        (quote! { item = 1, block = 1 }, "unknown key `item`; known are `items`,"),
        (quote! { items = 1, items = 2, block = 1 }, "`items` is given twice"),
        (quote! { items = 1, block = 1, fills = [a] }, "`a` is not written: `fills` names"),
        (quote! { items = 1, block = 1, fills = [c] }, "no parameter is named `c`"),
        (quote! { items = 1, block = 1, arithmetic = 1, nanoseconds = 1 }, "`arithmetic` and"),
        (quote! { items = 1, block = 1, entry = "a b" }, "this is not a name that PTX can have"),
    ] {
        let message = message(quote! { #[launch(#launch)] safe fn k(a: &[f32], b: &mut [f32]); });
        assert!(message.starts_with(expected), "{launch}: {message}");
    }
}

#[test]
fn mistakes_in_args_and_twin() {
    let kernel = quote! { #[launch(items = 1, block = 1)] safe fn k(a: &[f32], n: u32); };
    let args = |args| message(quote! { #[args(#args)] #kernel });
    assert_eq!(args(quote! { b }), "no parameter is named `b`; for a value write `b as u32`");
    assert_eq!(
        args(quote! { a, a.len() }),
        "an argument is a parameter's name or says its CUDA type: write `a.len() as u32`"
    );
    assert_eq!(
        args(quote! { n + 1 }),
        "an argument is a parameter's name or says its CUDA type: write `(n + 1) as u32`"
    );
    let twice = message(quote! { #[args(a)] #[args(n)] #kernel });
    assert_eq!(twice, "this attribute is given twice");
    let twin = message(quote! { #[twin(|x| x)] #kernel });
    assert_eq!(twin, "a twin is the path of a function: `#[twin(path)]`");
}

#[test]
fn mistakes_are_shown_together() {
    let all = messages(quote! {
        unsafe extern "C" {
            fn a(x: &f32);
            #[launch(items = 1)]
            safe fn b();
        }
    });
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn expressions_are_written_as_people_write_them() {
    for expression in [
        "input.len() == output.len()",
        "n > 0 && !(a.len() != b[0].len() * 2)",
        "rounds as u64 * 2 <= -1 + limit(x, y)",
        "n.is_multiple_of(16) || core::mem::size_of_val(&x) % 2 == 1",
        "matches!(n, 1..=4)",
        "[1, 2].len() < usize::MAX",
    ] {
        let parsed: syn::Expr = syn::parse_str(expression).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(text::of(&parsed), expression);
    }
}
