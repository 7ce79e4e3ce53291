//! A process that ends while a device is being closed, or waited for, ends as it should: the driver
//! library goes with it, and is not called any more.

use headwater::Device;

use crate::common::{AS_PROMISED, Child, in_process_of};
use crate::stub_driver::{Stub, has_compiler};

#[test]
fn a_process_ends_while_its_device_is_closed() {
    if !has_compiler() {
        println!("no compiler to make a driver with: nothing is tested");
        return;
    }
    let folder = Stub::new(13_000).compile();
    for _ in 0..5 {
        let child = Child::new("exit::the_process_that_ends", "closing");
        child.env("LD_LIBRARY_PATH", folder.path()).run();
    }
}

#[test]
#[ignore = "the process of another test"]
fn the_process_that_ends() {
    if in_process_of().is_none() {
        return;
    }
    // Unloading its modules takes longer than what this process still does.
    drop(Device::cuda(0).expect("the stub opens"));
    println!("{AS_PROMISED}");
}
