//! The attribute macro of the [`headwater`](https://docs.rs/headwater) crate; use it from there.

use proc_macro::TokenStream;

mod expand;
mod parse;
#[cfg(test)]
mod tests;
mod text;

/// Declares CUDA kernels as safe Rust functions.
///
/// The attribute goes on an `unsafe extern "C"` block, Rust's own form for "the declarer vouches,
/// the caller is safe". `ptx` is a constant `&'static str`, the text of the module that holds the
/// kernels of the block. The module registers itself when the program is linked and is loaded when
/// a device is opened, so that no launch ever loads one.
///
/// ```ignore
/// #[headwater::kernels(ptx = include_str!("../kernels/pipeline.ptx"))]
/// // SAFETY: thread i < n touches input[i] and output[i] only; n = output.len() = input.len()
/// // (required below).
/// unsafe extern "C" {
///     /// `rounds` rounds of `v * 0.99 + 0.01` on every element.
///     #[launch(
///         items = output.len(),
///         block = 256,
///         require = input.len() == output.len(),
///         arithmetic = output.len() as u64 * u64::from(rounds) * 2,
///         fills = [output],
///     )]
///     #[args(input, output, output.len() as u32, rounds)]
///     #[twin(work_on_host)]
///     pub safe fn work(input: &[f32], output: &mut [f32], rounds: u32);
/// }
///
/// fn work_on_host(input: &[f32], output: &mut [f32], rounds: u32) {
///     for (from, to) in input.iter().zip(output) {
///         *to = (0..rounds).fold(*from, |v, _| v * 0.99 + 0.01);
///     }
/// }
///
/// // Enqueued when the call returns, awaited through the `Completion`, or dropped.
/// work(&x, &mut y, 500)?;
/// ```
///
/// # What a declaration becomes
///
/// An ordinary function with the same name, visibility and attributes (docs, `cfg`, `deprecated`,
/// lints, …) that enqueues one launch and returns `headwater::Result<headwater::Completion>`:
///
/// | declared | accepted by the function | in every expression of the declaration |
/// | --- | --- | --- |
/// | `&[T]` | `impl IntoDeviceSlice<'_, T>`: read by the kernel | a `DeviceSlice<'_, T>` |
/// | `&mut [T]` | `impl IntoDeviceSliceMut<'_, T>`: read and written | a `DeviceSliceMut<'_, T>` |
/// | `TileRef<'_, T>` | `impl IntoDeviceTile<'_, T>`: a matrix, columns or a tile, read by the kernel | a `DeviceTile<'_, T>` |
/// | `TileMut<'_, T>` | `impl IntoDeviceTileMut<'_, T>`: read and written | a `DeviceTileMut<'_, T>` |
/// | any other `T` | `T` by value; `Copy + Send + NoUninit + 'static` | the value |
///
/// Other references, pointers, generics, patterns and return values are compile errors.
///
/// # `#[launch(…)]`, required
///
/// The declaration owns the geometry, so that no caller can make a correct kernel write out of
/// bounds. Each expression is evaluated at every launch and may use the parameters.
///
/// | key | type | meaning |
/// | --- | --- | --- |
/// | `items` | `usize` | threads wanted: as many blocks of `block` threads as hold them |
/// | `grid` | `u32`, or 2 or 3 of them as a tuple | blocks, instead of `items` |
/// | `block` | `u32`; with `grid` also a tuple | threads of a block; required |
/// | `shared` | `u32` | bytes of dynamic shared memory; 0 where left out |
/// | `require` | `bool` | what must hold, or the call is an `Err` and nothing is enqueued; repeatable |
/// | `arithmetic` | `u64` | arithmetic operations of the launch, for a simulated device's clock |
/// | `nanoseconds` | `u64` | a time instead of `arithmetic` |
/// | `fills` | `[a, b]` | these parameters, `&mut` or `TileMut`, are written completely and not read, so they need not have been written before |
/// | `entry` | a string literal | the PTX entry where it has another name than the function |
///
/// PTX comes from NVRTC, or `nvcc --ptx -arch=compute_75` (which runs on every GPU since Turing); a
/// driver takes no newer PTX than itself. Elements are plain data, `bytemuck::Pod`, and values
/// `bytemuck::NoUninit`: bytemuck derives both for structs.
///
/// # `#[args(…)]`
///
/// The kernel's CUDA parameters in order; their number and sizes are compared with the PTX when
/// the module is loaded. Each is the name of a parameter (a slice or tile stands for the device pointer
/// of its first element, a scalar for itself) or `expression as Type`. A length, `output.len() as u32`,
/// is checked, and so are `rows()`, `columns()` and `stride()` of a tile: one that does not fit is an
/// `Err` like a `require` that fails. Every other `as` is Rust's own and
/// may cut. Without `#[args]` the kernel takes the declared parameters as they stand.
///
/// # `#[twin(path)]`
///
/// The kernel's Rust equivalent, an ordinary function with the declared signature, run in place of
/// the kernel by a simulated device. For a tile it gets a `headwater::TileRef` or `TileMut`: elements
/// by row and column, and rows as slices. Without one the kernel cannot be launched there.
///
/// # Errors of a launch
///
/// Nothing is enqueued then, and memory is as it was. `Requirement`: a `require` does not hold.
/// `Geometry`: a grid, block or shared memory that the device does not take (a grid with no blocks is
/// nothing to do, and `Ok`). `Uninitialised`: an argument that nothing has written. `WrongDevice`,
/// `NoCurrentDevice`: arguments of several devices, or none and no scope. `NoTwin`, on a simulated
/// device. `NotPtx`, `PtxRejected`, `PtxTooNew`, `NoSuchKernel`, `SignatureMismatch`, `NotLoaded`:
/// what was wrong with the module or this kernel when the device was opened. `QueueFull`, `Refused`,
/// `DeviceLost`: as of every operation.
///
/// # Safety
///
/// Whoever writes the block promises, for each kernel and for all arguments that pass its
/// `require`s:
///
/// - it writes nothing but the elements of its `&mut` slices and `TileMut`s, reads nothing but the
///   elements of its slices and tiles, and stores no pointer for later: what lies between the rows of
///   a tile is somebody else's;
/// - it leaves every element it writes valid for its type, and writes all elements of the slices and
///   tiles named in `fills` before it reads one of them;
/// - the PTX entry's parameters have the types of `#[args]`.
///
/// A crate that forbids unsafe code (`forbid(unsafe_code)`) cannot vouch: it declares its kernels in
/// another crate. Where it is denied, `#[allow(unsafe_code)]` on the block lets this one in. The
/// expansion carries the span of the block's own `unsafe`, once, for lints: `unsafe_code` reports
/// it, and Clippy's `undocumented_unsafe_blocks` wants a `// SAFETY:` comment directly above it. `cfg`
/// and lint attributes on the block hold for everything in it.
#[proc_macro_attribute]
pub fn kernels(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernels(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
