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
    let mut opened = vec![device::open()?];
    let mut devices = match visible_devices() {
        // Then the one that is open is simulated.
        Err(Error::NoDriver | Error::FeatureMissing(_)) => Vec::new(),
        visible => visible?,
    };
    println!("GPUs visible: {}", devices.len());
    if std::env::args().any(|arg| arg == "--open") {
        for info in &devices {
            opened.push(Device::cuda(info.ordinal)?);
        }
    }
    for device in &opened {
        let info = device.info();
        match devices.iter_mut().find(|listed| listed.ordinal == info.ordinal) {
            Some(listed) if !info.simulated => {
                listed.priorities = info.priorities; // the one thing that a list lacks
                assert_eq!(listed, info);
            }
            _ => devices.push(info.clone()),
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
