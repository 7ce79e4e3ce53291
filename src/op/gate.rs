//! Holding streams back until the host lets them go.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Duration;

use super::kernel::{KernelDecl, ModuleDecl};
use super::modules::load;
use super::submit::{Operand, submit};
use crate::buffer::{HostBuffer, Mode};
use crate::device::{Device, FunctionTable, Stream};
use crate::driver::sim::Simulator;
use crate::driver::{FunctionHandle, KernelCost, Launch, TwinJob};
use crate::error::{Error, KernelError, Result};
use crate::reactor::{Completion, OpKey};

static KERNEL: KernelDecl = KernelDecl::new("gate", "gate", &[8, 8]);
static MODULE: ModuleDecl =
    ModuleDecl::new("headwater::testing", include_str!("../../kernels/testing.ptx"), &[&KERNEL]);

/// How long a gate holds a stream of a GPU back, unless told otherwise.
const LONGEST: Duration = Duration::from_secs(10);

/// Holds streams back until it is opened: what a test enqueues meanwhile is certain not to have run.
///
/// ```
/// use headwater::testing::{self, Gate};
///
/// # fn main() -> headwater::Result<()> {
/// let device = testing::device();
/// let stream = device.stream();
/// let gate = Gate::new(&device)?;
///
/// gate.hold(&stream)?;
/// let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
/// let filled = stream.in_scope(|| x.fill(7))?;
/// assert!(!filled.is_finished()?); // on any device, however fast
///
/// gate.open();
/// headwater::block_on(filled)
/// # }
/// ```
///
/// On a simulated device it is a gate of the device's: it takes no time. Whoever waits for what is
/// behind it when nothing else can happen either is told after ten seconds
/// ([`SimOptions::stall_limit`](crate::sim::SimOptions::stall_limit)) that the device is lost, with
/// code 702; the log and [`Simulator::violations`](crate::sim::Simulator::violations) name the
/// gate.
///
/// On a GPU it is a kernel of one thread for each stream held, which looks at page-locked memory until
/// the host writes there, for ten seconds at most ([`with_limit`](Gate::with_limit)), so that no test
/// hangs a GPU. It takes a place among the kernels that can run at once. What waits for running
/// kernels waits for a closed gate too, and can hold up other threads' calls meanwhile: opening and
/// closing devices, and the first gate of one. So let one test at a time use gates on a GPU
/// (`--test-threads=1`), and have it check that the gate never [gave up](Gate::gave_up).
///
/// # Drop
///
/// Opens it: nothing waits for a gate that is gone.
pub struct Gate {
    device: Device,
    /// The first is 1 once the gate is open; the kernel makes the second 1 where it gives up.
    /// Operations name this buffer, so that it is kept until their kernels have ended. No guard of
    /// it is made.
    words: HostBuffer<u32>,
    /// On a simulated device.
    simulated: Option<(Simulator, u64)>,
    limit: Duration,
}

impl Gate {
    /// A gate, closed.
    ///
    /// A device's first one loads a module (`cuModuleLoadData`), which waits for running kernels:
    /// make it before there are any.
    ///
    /// # Errors
    ///
    /// The module does not load, there is no page-locked memory, or the device is lost.
    pub fn new(device: &Device) -> Result<Gate> {
        Gate::with_limit(device, LONGEST)
    }

    /// A gate, closed, that lets everything through after `limit`, counted for each stream from when it
    /// comes to the gate. On a GPU only: a simulated device has no time of its own to wait.
    ///
    /// # Errors
    ///
    /// As [`Gate::new`].
    pub fn with_limit(device: &Device, limit: Duration) -> Result<Gate> {
        let core = device.core();
        core.reactor().check()?;
        core.gate().get_or_init(|| {
            let mut table = FunctionTable::default();
            load(core.reactor(), &MODULE, &mut table);
            table
        });
        core.reactor().announce();
        function(device)?;
        let words = HostBuffer::from_slice(core, &[0u32; 2])?;
        let simulated = device.simulator().map(|simulator| (simulator.clone(), simulator.gate()));
        Ok(Gate { device: device.clone(), words, simulated, limit })
    }

    /// Holds back what is enqueued on `stream` from here on, until the gate is open. The completion is
    /// ready when the stream is past the gate.
    ///
    /// # Errors
    ///
    /// The stream is another device's, its queue is full, the driver refused, or the device is lost.
    pub fn hold(&self, stream: &Stream) -> Result<Completion> {
        const HOLD: OpKey = OpKey::of(KERNEL.operation());
        let core = self.device.core();
        if stream.device_number() != core.number() {
            let (of, on) = (stream.device_number(), core.number());
            return Err(Error::WrongDevice { operation: HOLD.name(), argument: "stream", of, on });
        }
        let words = self.words.place().first::<u32>().as_ptr() as u64;
        let nanoseconds = u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX);
        let params: [*const c_void; 2] = [from_ref(&words).cast(), from_ref(&nanoseconds).cast()];
        let nothing = || -> TwinJob { Box::new(|_| Ok(())) };
        let launch = Launch {
            function: function(&self.device)?,
            name: HOLD.name(),
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            params: &params,
            accesses: &[],
            cost: KernelCost::Nanoseconds(0),
            twin: Some(&nothing),
            gate: self.simulated.as_ref().map(|(_, gate)| *gate),
        };
        let touched = self.words.place().access(Mode::Read);
        stream.in_scope(|| {
            submit(core, HOLD, &[Operand::new("gate", touched)], 1, |driver, stream| {
                // SAFETY: the parameters are those of `gate` in kernels/testing.cu: an address and a
                // number of 64 bits, whose values live until the call returns. The kernel touches
                // two words of page-locked memory, which this operation names, so that they are not
                // used again before it is done; all other accesses to them are atomic. Its module
                // stays loaded while the device is open.
                Ok(unsafe { driver.launch(&launch, stream) }?)
            })
        })
    }

    /// Lets everything through, for good.
    pub fn open(&self) {
        self.word(0).store(1, Release);
        if let Some((simulator, gate)) = &self.simulated {
            simulator.open_gate(*gate);
        }
    }

    /// Whether it let a stream through because its limit was over: then a test that relied on it has
    /// shown nothing.
    pub fn gave_up(&self) -> bool {
        self.word(1).load(Acquire) != 0
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        let words = self.words.place().first::<u32>();
        // SAFETY: there are two words, aligned and alive as long as `self.words`; device and host reach
        // them by atomic accesses only, and there is no guard of the buffer.
        unsafe { AtomicU32::from_ptr(words.as_ptr().add(index)) }
    }
}

fn function(device: &Device) -> Result<&FunctionHandle> {
    let functions = device.core().gate().get().map(|table| &table.functions);
    match functions.and_then(|functions| functions.get(KERNEL.number())) {
        Some(Some(Ok(function))) => Ok(function),
        Some(Some(Err(why))) => Err(why.clone()),
        Some(None) | None => Err(Error::Kernel(KernelError::NotLoaded { kernel: "gate" })),
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("device", &self.device.number())
            .field("is_open", &(self.word(0).load(Relaxed) != 0))
            .finish_non_exhaustive()
    }
}
