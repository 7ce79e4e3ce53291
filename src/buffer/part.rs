//! Parts of buffers that are owned: for tasks and threads that borrow nothing.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::host_buffer::HostBuffer;
use super::pinned::Pinned;
use super::shape::Shape;
use super::store::{Backing, Place, Store};
use crate::device::Device;
use crate::error::{Error, Result};

/// A buffer that is not dealt out as parts: given back, with the reason. Where it is of no more use,
/// `map_err(|refused| refused.error)?`.
// No `From` for `Error`: see `NotRejoined`.
#[derive(Debug)]
pub struct NotDivided<B> {
    /// As it was given.
    pub buffer: B,
    /// What is wrong.
    pub error: Error,
}

impl<B> fmt::Display for NotDivided<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B: fmt::Debug> std::error::Error for NotDivided<B> {}

/// Parts that are not rejoined, because they are not all parts of one buffer: given back, with the
/// reason. Where the parts are of no more use, `map_err(|refused| refused.error)?`.
// There is no `From` for `Error`: with one, `?` in a closure that ends in `Ok(…)` would no longer tell
// that closure's error type, in every program that uses this crate.
#[derive(Debug)]
pub struct NotRejoined<P> {
    /// All that were given.
    pub parts: Vec<P>,
    /// What is wrong with them.
    pub error: Error,
}

impl<P> fmt::Display for NotRejoined<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<P: fmt::Debug> std::error::Error for NotRejoined<P> {}

/// The elements of one part. No two shares of a store have one in common, and together, while none
/// is dropped, they are all of it.
struct Share<M> {
    store: Arc<Store<M>>,
    start: usize,
    len: usize,
}

impl<M: Backing> Share<M> {
    fn place(&self) -> Place<'_, M> {
        self.store.place_of(Shape::of_elements(self.start, self.len))
    }

    /// Shares of all of `store`, whose elements the lengths add up to.
    fn deal<L: ExactSizeIterator<Item = usize>>(
        store: Store<M>,
        lengths: Result<L>,
    ) -> Result<Vec<Self>, (Store<M>, Error)> {
        let lengths = match lengths {
            Ok(lengths) => lengths,
            Err(error) => return Err((store, error)),
        };
        let mut shares = Vec::new();
        let (len, element_size) = (lengths.len(), size_of::<Self>());
        if shares.try_reserve_exact(len).is_err() {
            return Err((store, Error::TooLarge { len, element_size }));
        }
        let store = Arc::new(store);
        let mut start = 0;
        for len in lengths {
            shares.push(Share { store: store.clone(), start, len });
            start += len;
        }
        Ok(shares)
    }

    /// Keeps the elements before `mid`, and gives those from there on.
    fn split_off(&mut self, mid: usize) -> Result<Self> {
        let after = self.place().shape().elements(mid..)?;
        self.len = mid;
        Ok(Share { store: self.store.clone(), start: after.start(), len: after.len() })
    }

    /// The store that these are all shares of.
    fn rejoin(mut shares: Vec<Self>) -> Result<Store<M>, (Vec<Self>, Error)> {
        shares.sort_unstable_by_key(|share| (share.start, share.len));
        if let Err(error) = Self::check_all(&shares) {
            return Err((shares, error));
        }
        let cuts: Vec<_> = shares.iter().map(|share| (share.start, share.len)).collect();
        // All but one give up their claim.
        let last = shares.into_iter().map(|share| share.store).reduce(|_, store| store);
        let Some(store) = last else { return Err((Vec::new(), Error::NoParts)) };
        Arc::try_unwrap(store).map_err(|store| {
            // Every element is there: what is elsewhere is a share of none.
            let error = store.missing(store.len..store.len);
            let share = |(start, len)| Share { store: store.clone(), start, len };
            (cuts.into_iter().map(share).collect(), error)
        })
    }

    /// Whether every element of one store is in one of these, which are sorted.
    fn check_all(shares: &[Self]) -> Result<()> {
        let Some(Share { store, .. }) = shares.first() else { return Err(Error::NoParts) };
        if let Some(other) = shares.iter().find(|share| !Arc::ptr_eq(&share.store, store)) {
            let buffers = [store.describe(), other.store.describe()];
            return Err(Error::PartsOfSeveral { buffers });
        }
        let mut end = 0;
        for share in shares {
            if share.start > end {
                return Err(store.missing(end..share.start));
            }
            end = share.start + share.len;
        }
        if end < store.len { Err(store.missing(end..store.len)) } else { Ok(()) }
    }
}

impl<M: Backing> Store<M> {
    fn missing(&self, elements: Range<usize>) -> Error {
        Error::PartsMissing { buffer: self.describe(), elements, len: self.len }
    }
}

/// The lengths of `parts` parts of `len` elements, which differ by one at most.
fn even(len: usize, parts: usize) -> Result<impl ExactSizeIterator<Item = usize>> {
    let (Some(each), Some(longer)) = (len.checked_div(parts), len.checked_rem(parts)) else {
        return Err(Error::EmptyPieces);
    };
    Ok((0..parts).map(move |part| each + usize::from(part < longer)))
}

/// The lengths of chunks of `each` elements, of `len` in all: one chunk at least.
fn chunks(len: usize, each: usize) -> Result<impl ExactSizeIterator<Item = usize>> {
    if each == 0 {
        return Err(Error::EmptyPieces);
    }
    Ok((0..len.div_ceil(each).max(1)).map(move |chunk| each.min(len - chunk * each)))
}

macro_rules! part {
    ($(#[$doc:meta])* $name:ident of $buffer:ident in $memory:ty) => {
        $(#[$doc])*
        pub struct $name<T> {
            share: Share<$memory>,
            element: PhantomData<T>,
        }

        impl<T: Pod> $name<T> {
            fn of_share(share: Share<$memory>) -> Self {
                $name { share, element: PhantomData }
            }

            pub(crate) fn place(&self) -> Place<'_, $memory> {
                self.share.place()
            }

            /// Shortens the part to its first `mid` elements and returns the others as another one.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](Error::OutOfRange): `mid` is more than the length.
            pub fn split_off(&mut self, mid: usize) -> Result<Self> {
                self.share.split_off(mid).map(Self::of_share)
            }
        }

        impl<T> $name<T> {
            /// Elements.
            pub fn len(&self) -> usize {
                self.share.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.share.len == 0
            }

            /// Which elements of the buffer it is.
            pub fn range(&self) -> Range<usize> {
                self.share.start..self.share.start + self.share.len
            }

            /// The device whose memory it is, or whose copies it is made for.
            pub fn device(&self) -> Device {
                Device::from_core(self.share.store.core.clone())
            }
        }

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("buffer", &self.share.store.number())
                    .field("type", &std::any::type_name::<T>())
                    .field("range", &self.range())
                    .finish_non_exhaustive()
            }
        }

        impl<T: Pod> $buffer<T> {
            /// Deals the buffer out as `parts` parts in one piece each, whose lengths differ by one at
            /// most: where there are more parts than elements, the last ones have none. The parts are
            /// owned, `Send` and `'static`: give them to tasks or threads, and have them
            /// [rejoined](Self::rejoin), or drop them.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](Error::EmptyPieces): `parts` is 0; [`TooLarge`](Error::TooLarge): there
            /// is no memory for so many; with the buffer.
            #[expect(clippy::result_large_err, reason = "it is the buffer, as given")]
            pub fn into_parts(self, parts: usize) -> Result<Vec<$name<T>>, NotDivided<Self>> {
                let lengths = even(self.len(), parts);
                self.dealt(lengths)
            }

            /// Deals the buffer out as parts of `len` elements each; the last one may have less. Of a
            /// buffer without elements there is one part without elements. See
            /// [`into_parts`](Self::into_parts).
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](Error::EmptyPieces): `len` is 0; [`TooLarge`](Error::TooLarge): there is
            /// no memory for so many; with the buffer.
            #[expect(clippy::result_large_err, reason = "it is the buffer, as given")]
            pub fn into_chunks(self, len: usize) -> Result<Vec<$name<T>>, NotDivided<Self>> {
                let lengths = chunks(self.len(), len);
                self.dealt(lengths)
            }

            #[expect(clippy::result_large_err, reason = "it is the buffer, as given")]
            fn dealt<L: ExactSizeIterator<Item = usize>>(
                self,
                lengths: Result<L>,
            ) -> Result<Vec<$name<T>>, NotDivided<Self>> {
                match Share::deal(self.store, lengths) {
                    Ok(shares) => Ok(shares.into_iter().map($name::of_share).collect()),
                    Err((store, error)) => Err(NotDivided { buffer: Self::of_store(store), error }),
                }
            }

            /// The buffer that these are all parts of, in whatever order. Costs no operation: who uses
            /// the buffer next is ordered after whoever used a part, element by element.
            ///
            /// ```
            #[doc = concat!("# use headwater::{", stringify!($buffer), ", Result};")]
            #[doc = concat!("# fn f(x: ", stringify!($buffer), "<f32>) -> Result<", stringify!($buffer), "<f32>> {")]
            /// let parts = x.into_parts(4).map_err(|refused| refused.error)?;
            #[doc = concat!("let x = ", stringify!($buffer), "::rejoin(parts).map_err(|refused| refused.error)?;")]
            /// # Ok(x)
            /// # }
            /// ```
            ///
            /// A part that was dropped, say by a task that panicked or was aborted, cannot come back,
            /// and the buffer neither, unless the part had no elements. The parts that are left are as
            /// good as before, and the memory goes back with the last of them.
            ///
            /// # Errors
            ///
            /// [`NoParts`](Error::NoParts), [`PartsOfSeveral`](Error::PartsOfSeveral),
            /// [`PartsMissing`](Error::PartsMissing), with the parts given.
            pub fn rejoin(
                parts: impl IntoIterator<Item = $name<T>>,
            ) -> Result<Self, NotRejoined<$name<T>>> {
                let shares = parts.into_iter().map(|part| part.share).collect();
                Share::rejoin(shares).map(Self::of_store).map_err(|(shares, error)| {
                    let parts = shares.into_iter().map($name::of_share).collect();
                    NotRejoined { parts, error }
                })
            }
        }
    };
}

part! {
    /// Elements of a [`DeviceBuffer`] that was dealt out, owned: `Send` and `'static`, for a task or a
    /// thread of its own.
    ///
    /// Made by [`DeviceBuffer::into_parts`] and [`DeviceBuffer::into_chunks`]. What touches one part is
    /// not ordered with what touches another.
    ///
    /// A view borrows, so it cannot go to a task that is spawned: a part can. For columns, of which
    /// there are no parts, join futures in one task, as
    /// [`DeviceTileMut`](crate::DeviceTileMut) shows.
    ///
    /// ```
    /// use headwater::{Device, DeviceBuffer, Result};
    ///
    /// /// Fills a buffer from as many tasks as it has quarters.
    /// async fn fill(device: &Device, x: DeviceBuffer<f32>) -> Result<DeviceBuffer<f32>> {
    ///     let parts = x.into_parts(4).map_err(|refused| refused.error)?;
    ///     let mut tasks = Vec::new();
    ///     for (i, mut quarter) in parts.into_iter().enumerate() {
    ///         tasks.push(headwater::spawn(async move {
    ///             quarter.fill(i as f32)?; // on that task's own stream
    ///             Ok::<_, headwater::Error>(quarter)
    ///         }));
    ///     }
    ///     let mut quarters = Vec::new();
    ///     for task in tasks {
    ///         quarters.push(task.await.expect("no panic")?);
    ///     }
    ///     DeviceBuffer::rejoin(quarters).map_err(|refused| refused.error) // no fill was waited for
    /// }
    /// # fn main() {
    /// #     let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// #     runtime.block_on(async {
    /// #         let device = Device::simulated()?;
    /// #         let x = fill(&device, device.alloc(8)?).await?;
    /// #         assert_eq!(x.to_vec().await?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    /// #         Ok::<_, headwater::Error>(())
    /// #     }).unwrap();
    /// # }
    /// ```
    ///
    /// # Drop
    ///
    /// A part that is dropped, also by a task that panics or is aborted, is lost: the buffer is not
    /// [rejoined](DeviceBuffer::rejoin) without it. The other parts stay usable.
    ///
    /// Dropping the last part of a buffer frees its memory, as dropping the buffer would:
    /// in stream order, after the last operation that uses any part.
    DevicePart of DeviceBuffer in Allocation
}

part! {
    /// Elements of a [`HostBuffer`] that was dealt out, owned: `Send` and `'static`, for a task or a
    /// thread of its own.
    ///
    /// Made by [`HostBuffer::into_parts`] and [`HostBuffer::into_chunks`]. Copies of one part, and
    /// guards of it, are not ordered with those of another.
    ///
    /// # Drop
    ///
    /// A part that is dropped is lost, as a [`DevicePart`] is.
    ///
    /// Dropping the last part of a buffer gives its memory back to the device's pool.
    HostPart of HostBuffer in Pinned
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_parts_differ_by_one_at_most_and_add_up() {
        for (len, parts, expected) in
            [(10, 3, &[4, 3, 3][..]), (2, 4, &[1, 1, 0, 0]), (0, 2, &[0, 0]), (7, 1, &[7])]
        {
            assert_eq!(even(len, parts).expect("parts").collect::<Vec<_>>(), expected);
        }
        assert!(matches!(even(5, 0).map(drop), Err(Error::EmptyPieces)));
        assert_eq!(even(7, usize::MAX).expect("parts").len(), usize::MAX);
    }

    #[test]
    fn chunks_are_as_long_as_asked_but_the_last_and_there_is_at_least_one() {
        let max = usize::MAX;
        for (len, each, expected) in [
            (10, 4, &[4, 4, 2][..]),
            (8, 4, &[4, 4]),
            (0, 5, &[0]),
            (3, max, &[3]),
            (max, max, &[max]),
        ] {
            assert_eq!(chunks(len, each).expect("chunks").collect::<Vec<_>>(), expected);
        }
        assert!(matches!(chunks(5, 0).map(drop), Err(Error::EmptyPieces)));
    }
}
