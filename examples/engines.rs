//! What the devices here can do at once: copy both ways beside kernels, run several kernels, reach
//! each other's memory.
//!
//! One table of every visible device. Listing them opens none; the one that `HEADWATER_DEVICE`
//! names is opened, for its stream priorities and to compare, or with `--open` each in turn.

#[path = "common/device.rs"]
mod device;

use headwater::{Device, DeviceInfo, Error, Result, visible_devices};

/// A row of the table: what it is called, and what a device says of it.
type Row = (&'static str, fn(&DeviceInfo) -> String);

const ROWS: [Row; 11] = [
    ("", |info| if info.simulated { "sim".into() } else { format!("cuda:{}", info.ordinal) }),
    ("name", |info| info.name.clone()),
    ("compute capability", |info| {
        let (major, minor) = info.compute_capability;
        format!("{major}.{minor}")
    }),
    ("copy engines", |info| info.copy_engines.to_string()),
    ("concurrent kernels", |info| info.concurrent_kernels.to_string()),
    ("multiprocessors", |info| info.multiprocessors.to_string()),
    ("stream priorities", |info| match info.priorities {
        Some((least, most)) => format!("{least} to {most}"),
        None => "not opened".into(),
    }),
    ("peers", |info| format!("{:?}", info.peers)),
    ("memory, MiB", |info| (info.total_memory >> 20).to_string()),
    ("hardware queues", |info| info.hardware_queues.to_string()),
    ("CUDA of the driver", |info| match info.driver_version {
        0 => "none".into(),
        version => format!("{}.{}", version / 1000, version % 1000 / 10),
    }),
];

fn main() -> Result<()> {
    let (mut devices, opened) = match visible_devices() {
        Ok(visible) if !visible.is_empty() && std::env::args().any(|arg| arg == "--open") => {
            let opened = visible.iter().map(|info| Device::cuda(info.ordinal)).collect();
            (visible, opened)
        }
        Ok(visible) => (visible, vec![device::open()]),
        Err(error @ (Error::NoDriver(_) | Error::FeatureMissing(_))) => {
            println!("no GPU here, so this reports on the simulated device ({error})");
            (Vec::new(), vec![Device::simulated()])
        }
        Err(error) => return Err(error),
    };
    println!("GPUs visible: {}", devices.len());
    for opened in opened {
        match opened {
            Ok(device) if device.info().simulated => devices.push(device.info().clone()),
            Ok(device) => {
                let listed = &mut devices[device.info().ordinal];
                listed.priorities = device.info().priorities; // the one thing that a list lacks
                assert_eq!(listed, device.info());
            }
            // What the list says stands without it.
            Err(error) => println!("not opened: {error}"),
        }
    }
    print_table(&devices);
    Ok(())
}

/// A column for each device: there are more properties than devices.
fn print_table(devices: &[DeviceInfo]) {
    let columns: Vec<_> = devices.iter().map(|info| ROWS.map(|(_, cell)| cell(info))).collect();
    for (at, (name, _)) in ROWS.iter().enumerate() {
        let mut line = format!("{name:18}");
        for column in &columns {
            let width = column.iter().map(String::len).max().unwrap_or(0);
            line += &format!("  {:width$}", column[at]);
        }
        println!("{}", line.trim_end());
    }
}
