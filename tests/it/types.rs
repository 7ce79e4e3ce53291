//! Which public types cross threads, move, and borrow nothing. That it compiles is the test.

use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};

use headwater::sim::{
    CostModel, DriverCall, Fault, Injected, SimMachine, SimOp, SimOptions, SimSpan, Simulator,
    Violation,
};
use headwater::testing::{Cause, Failure, Gate};
use headwater::*;

fn owned<T: Send + Sync + Unpin + Debug + 'static>() {}
fn borrowed<T: Send + Sync + Unpin + Debug>() {}
fn future<T: IntoFuture<Output = Result<O>>, O>() {}

#[test]
fn what_users_hold_crosses_threads_and_borrows_nothing() {
    owned::<Device>();
    owned::<DeviceBuilder>();
    owned::<DeviceInfo>();
    owned::<DriverCalls>();
    owned::<Stream>();
    owned::<StreamOptions>();
    owned::<Priority>();
    owned::<Event>();
    owned::<Elapsed>();
    owned::<DeviceBuffer<f32>>();
    owned::<HostBuffer<f32>>();
    owned::<DevicePart<f32>>();
    owned::<HostPart<f32>>();
    owned::<SharedBuffer<f32>>();
    owned::<HostOptions>();
    owned::<PinnedStats>();
    owned::<NotPinned<f32>>();
    owned::<NotUnpinned<f32>>();
    owned::<FromVec<f32>>();
    owned::<IntoVec<f32>>();
    owned::<TrimPinned>();
    owned::<NotDivided<DeviceBuffer<f32>>>();
    owned::<NotCast<SharedBuffer<f32>>>();
    owned::<NotRejoined<DevicePart<f32>>>();
    owned::<Error>();
    owned::<DeviceFailure>();
    owned::<DriverError>();
    owned::<Simulator>();
    owned::<SimOptions>();
    owned::<SimMachine>();
    owned::<CostModel>();
    owned::<SimOp>();
    owned::<SimSpan>();
    owned::<Violation>();
    owned::<Fault>();
    owned::<Injected>();
    owned::<DriverCall>();
    owned::<Gate>();
    owned::<Failure>();
    owned::<Cause>();
}

#[test]
fn what_users_hold_may_cross_a_caught_panic() {
    fn caught<T: UnwindSafe + RefUnwindSafe>() {}
    caught::<Device>();
    caught::<Stream>();
    caught::<Event>();
    caught::<Completion>();
    caught::<Ready>();
    caught::<Synchronize>();
    caught::<DeviceBuffer<f32>>();
    caught::<HostBuffer<f32>>();
    caught::<DevicePart<f32>>();
    caught::<HostPart<f32>>();
    caught::<SharedBuffer<f32>>();
    caught::<DeviceSlice<'_, f32>>();
    caught::<HostSlice<'_, f32>>();
    caught::<Upload<f32>>();
    caught::<ToVec<'_, f32>>();
    caught::<Progress>();
    caught::<Error>();
    caught::<Simulator>();
    caught::<SimMachine>();
    caught::<Gate>();
}

#[test]
fn futures_cross_threads_and_need_no_pinning() {
    owned::<Completion>();
    owned::<Ready>();
    owned::<Synchronize>();
    owned::<Upload<f32>>();
    owned::<Progress>();
    owned::<Prefetch<futures::stream::Iter<std::vec::IntoIter<Vec<f32>>>, f32>>();
    owned::<StagingOptions>();
    borrowed::<ToVec<'_, f32>>();
    borrowed::<Refill<'_, f32>>();
    borrowed::<Source<'_, f32>>();
    borrowed::<Resize<'_, f32>>();
    borrowed::<Read<'_, f32>>();
    borrowed::<Write<'_, f32>>();
    borrowed::<ReadTile<'_, f32>>();
    borrowed::<WriteTile<'_, f32>>();
    borrowed::<CopyOnHost<'_, f32>>();
    borrowed::<Scope<Completion>>();
    future::<Completion, ()>();
    future::<Ready, ()>();
    future::<Synchronize, ()>();
    future::<Event, ()>();
    future::<&Event, ()>();
    future::<Upload<f32>, DeviceBuffer<f32>>();
    future::<ToVec<'static, f32>, Vec<f32>>();
    future::<Refill<'static, f32>, ()>();
    future::<TrimPinned, usize>();
    future::<Resize<'static, f32>, ()>();
    future::<Read<'static, f32>, HostRef<'static, f32>>();
    future::<Write<'static, f32>, HostMut<'static, f32>>();
    future::<ReadTile<'static, f32>, TileRef<'static, f32>>();
    future::<WriteTile<'static, f32>, TileMut<'static, f32>>();
    future::<CopyOnHost<'static, f32>, ()>();
    future::<Scope<Completion>, ()>();
}

#[test]
fn views_and_guards_cross_threads() {
    borrowed::<DeviceSlice<'_, f32>>();
    borrowed::<DeviceSliceMut<'_, f32>>();
    borrowed::<HostSlice<'_, f32>>();
    borrowed::<HostSliceMut<'_, f32>>();
    borrowed::<DeviceTile<'_, f32>>();
    borrowed::<DeviceTileMut<'_, f32>>();
    borrowed::<HostTile<'_, f32>>();
    borrowed::<HostTileMut<'_, f32>>();
    borrowed::<DeviceVolume<'_, f32>>();
    borrowed::<DeviceVolumeMut<'_, f32>>();
    borrowed::<HostVolume<'_, f32>>();
    borrowed::<HostVolumeMut<'_, f32>>();
    borrowed::<TileRef<'_, f32>>();
    borrowed::<TileMut<'_, f32>>();
    borrowed::<Pieces<DeviceSlice<'_, f32>>>();
    borrowed::<Pieces<DeviceSliceMut<'_, f32>>>();
    borrowed::<Pieces<HostSlice<'_, f32>>>();
    borrowed::<Pieces<HostSliceMut<'_, f32>>>();
    borrowed::<HostRef<'_, f32>>();
    borrowed::<HostMut<'_, f32>>();
}

#[test]
fn handles_are_cheap_to_clone_and_memory_is_not_cloned() {
    fn handle<T: Clone>() {}
    handle::<Device>();
    handle::<Stream>();
    handle::<Event>();
    handle::<Simulator>();
    handle::<SimMachine>();
    handle::<SharedBuffer<f32>>();
    handle::<DeviceSlice<'_, f32>>();
    handle::<HostSlice<'_, f32>>();
    handle::<DeviceTile<'_, f32>>();
    handle::<HostTile<'_, f32>>();
    handle::<DeviceVolume<'_, f32>>();
    handle::<HostVolume<'_, f32>>();
    handle::<TileRef<'_, f32>>();
    // Memory, what borrows it exclusively, and `Completion` are not `Clone`: this would be ambiguous.
    trait Ambiguous<A> {
        fn check() {}
    }
    impl<T> Ambiguous<()> for T {}
    impl<T: Clone> Ambiguous<u8> for T {}
    <DeviceBuffer<f32> as Ambiguous<_>>::check();
    <HostBuffer<f32> as Ambiguous<_>>::check();
    <DevicePart<f32> as Ambiguous<_>>::check();
    <HostPart<f32> as Ambiguous<_>>::check();
    <DeviceSliceMut<'_, f32> as Ambiguous<_>>::check();
    <HostSliceMut<'_, f32> as Ambiguous<_>>::check();
    <DeviceTileMut<'_, f32> as Ambiguous<_>>::check();
    <HostTileMut<'_, f32> as Ambiguous<_>>::check();
    <DeviceVolumeMut<'_, f32> as Ambiguous<_>>::check();
    <HostVolumeMut<'_, f32> as Ambiguous<_>>::check();
    <TileMut<'_, f32> as Ambiguous<_>>::check();
    <Pieces<DeviceSliceMut<'_, f32>> as Ambiguous<_>>::check();
    <Completion as Ambiguous<_>>::check();
}

#[test]
fn errors_are_small_enough_to_return() {
    assert!(size_of::<Error>() <= 96, "{}", size_of::<Error>());
    assert!(size_of::<Completion>() <= 48, "{}", size_of::<Completion>());
}
