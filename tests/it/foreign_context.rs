//! Beside another library's context.
#![allow(unsafe_code, reason = "the driver's own calls, to play another library")]

use std::ptr::null_mut;

use cudarc::driver::sys;
use headwater::{Elapsed, Result};

use crate::common::{elements, on_gpu, own_device, wait};
use crate::kernels::increment;

/// Another library may have made its own context current on a thread: work still goes where its
/// buffers are, and the other library finds its context as it left it.
#[test]
#[ignore = "needs a GPU"]
fn a_foreign_current_context_changes_nothing_and_stays() -> Result<()> {
    assert!(on_gpu(), "run with HEADWATER_REQUIRE_GPU=1");
    let device = own_device();
    std::thread::spawn(move || {
        let foreign = create();
        let mut x = wait(device.upload(vec![41u32; 1_000]))?;
        increment(&mut x)?;
        let other = device.stream();
        other.in_scope(|| increment(&mut x))?;
        assert_eq!(elements(&x), vec![43; 1_000]);
        // What is made here is made in the device's context, not in the current one.
        let start = other.record_timed()?;
        let pinned = device.alloc_host::<u32>(123_456)?;
        let end = other.record_timed()?;
        wait(&end)?;
        assert!(matches!(end.elapsed_since(&start)?, Elapsed::Time(_)));
        drop((start, end, pinned));
        drop((x, other, device));
        assert_eq!(current(), foreign);
        Ok(())
    })
    .join()
    .expect("the thread ends well")
}

/// Makes a context and leaves it current on this thread. It is never destroyed.
fn create() -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: the driver was initialised by opening a device; the pointer outlives the call.
    let created = unsafe { sys::cuCtxCreate_v2(&mut context, 0, 0) };
    assert_eq!(created, sys::CUresult::CUDA_SUCCESS);
    assert_eq!(current(), context);
    context
}

fn current() -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: the pointer outlives the call.
    unsafe { sys::cuCtxGetCurrent(&mut context) };
    context
}
